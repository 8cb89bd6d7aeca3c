"""The worker as it runs: one leads, it comes back, and nobody who asks notices it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest

from policies.snapshot import Snapshot
from policies.thresholds import DEFAULTS
from retrieval.signals.settings import SignalSettings
from retrieval.signals.worker import QUIET_S, SignalWorker, WorkerState, state_of_signals
from tests.retrieval.signals.desk import QUICK, Desk
from tests.retrieval.signals.test_gaps import ABOUT, SEEN
from tests.retrieval.signals.test_ledger import run
from tests.retrieval.stage import wire
from tests.retrieval.world import EMBEDDER
from tests.services import Database, VectorService

BUSY = QUICK.model_copy(update={"period_s": 0.05})


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - what the worker does
            await asyncio.sleep(0.02)


def worker(ready: Desk, settings: SignalSettings = BUSY) -> SignalWorker:
    database = ready.stage.database
    return SignalWorker(database.url, database.secret, settings, lambda: DEFAULTS, lambda: EMBEDDER)


@asynccontextmanager
async def working(one: SignalWorker) -> AsyncIterator[None]:
    task = asyncio.create_task(one.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def leads(one: SignalWorker) -> bool:
    return one.state is WorkerState.LEADING


def test_a_question_becomes_a_routed_gap_without_anybody_asking_for_it(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        one = worker(ready)
        async with working(one):
            await until(lambda: leads(one))
            for _ in range(2):
                await ready.ask(ABOUT)
            await until(lambda: ready.rows("select 1 from gate.governance_queue"))
            await until(lambda: ready.rows("select 1 from brain.retrieval_metric_aggregate"))
        assert await ready.signals() == {"missing_thread": "absent", "search_gap": "absent"}
        assert one.state is WorkerState.DOWN

    run(database, sidecar, snapshot, act, SEEN)


def test_of_two_workers_one_leads_and_the_other_takes_over(
    database: Database, sidecar: VectorService, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.signals.worker.STANDBY_S", 0.05)

    async def act(ready: Desk) -> None:
        first, second = worker(ready), worker(ready)
        async with working(second):
            await until(lambda: leads(second))
            async with working(first):

                async def waits() -> bool:
                    return first.state is WorkerState.STANDBY

                await until(waits)
                assert second.state is WorkerState.LEADING
        async with working(first):
            await until(lambda: leads(first))

    run(database, sidecar, snapshot, act, SEEN)


def test_a_worker_whose_sessions_are_ended_comes_back(
    database: Database, sidecar: VectorService, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.signals.worker.RETRY_S", 0.05)

    async def act(ready: Desk) -> None:
        one = worker(ready)
        async with working(one):
            await until(lambda: leads(one))
            keep = [ready.listening.info.backend_pid, ready.own.info.backend_pid]
            await ready.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where usename = 'gw_signal' and datname = current_database()"
                " and pid <> all(%s)",
                keep,
            )

            async def is_down() -> bool:
                return one.state is not WorkerState.LEADING

            await until(is_down)
            await until(lambda: leads(one))
            for _ in range(2):
                await ready.ask(ABOUT)
            await until(lambda: ready.rows("select 1 from brain.decision_backlog"))

    run(database, sidecar, snapshot, act, SEEN)


def test_answers_are_the_same_with_a_worker_and_without_one(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    def told(text: str) -> str:
        return re.sub(r'"pack_id":"[^"]*"', "", text)

    async def act(ready: Desk) -> None:
        queries = (ABOUT, "refund limits", "lost password")
        before = [told(wire(await ready.ask(query))) for query in queries]
        one = worker(ready)
        async with working(one):
            await until(lambda: leads(one))
            for _ in range(3):
                assert [told(wire(await ready.ask(query))) for query in queries] == before
            await until(lambda: ready.rows("select 1 from brain.decision_backlog"))
            assert [told(wire(await ready.ask(query))) for query in queries] == before

    run(database, sidecar, snapshot, act, SEEN)


def test_a_foreign_notification_does_no_harm(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Any login of the database may send one."""

    async def act(ready: Desk) -> None:
        one = worker(ready)
        async with working(one):
            await until(lambda: leads(one))
            for payload in ("", "nonsense", "gAAAAA" + "A" * 200):
                await ready.rows("select pg_notify('gw_inquiry', %s)", payload)
            for _ in range(2):
                await ready.ask(ABOUT)
            await until(lambda: ready.rows("select 1 from brain.decision_backlog"))

    run(database, sidecar, snapshot, act, SEEN)


async def said(ready: Desk) -> str:
    database = ready.stage.database
    return await state_of_signals(database.url, database.secret)


def test_a_worker_is_down_until_it_leads_and_when_it_gives_no_sign(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        assert await said(ready) == "signals_down"
        one = worker(ready)
        async with working(one):
            await until(lambda: leads(one))
            assert await said(ready) == "ok"
        await ready.stage.sql(
            "update brain.signal_worker set beat_at = beat_at - make_interval(secs => %s)",
            (QUIET_S,),
        )
        assert await said(ready) == "signals_down"
        async with working(one):
            await until(lambda: leads(one))
            assert await said(ready) == "ok"

    run(database, sidecar, snapshot, act, SEEN)


def test_a_worker_that_lives_and_ends_no_pass_is_behind(
    database: Database, sidecar: VectorService, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on beating; the pass stands still and then is let go on."""
    monkeypatch.setattr("retrieval.signals.worker.BEAT_S", 0.05)

    async def act(ready: Desk) -> None:
        one = worker(ready)
        async with await psycopg.AsyncConnection.connect(database.url) as blocker:
            await blocker.execute("lock table brain.search_gap_signal in access exclusive mode")
            async with working(one):
                await until(lambda: leads(one))
                await ready.stage.sql("update brain.signal_worker set due_at = now()")

                async def beats() -> bool:
                    (row,) = await ready.rows("select beat_at > due_at from brain.signal_worker")
                    return bool(row[0])

                await until(beats)
                assert await said(ready) == "signals_behind"
                await blocker.rollback()

                async def on_time() -> bool:
                    return await said(ready) == "ok"

                await until(on_time)

    run(database, sidecar, snapshot, act, SEEN)


CHECKS = "select made_by, source, limits, found from brain.thread_check order by checked_at"
TWO = (
    "select 1 from brain.retrieval_metric_aggregate"
    " where metric = 'thread_hit_rate' and denominator = 2"
)
OVERDUE = "update brain.thread_check set checked_at = checked_at - interval '2 hours'"


def test_threads_are_checked_once_each_time_it_is_due_and_it_is_recorded(
    database: Database, sidecar: VectorService, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that comes back begins no new term. The first check comes a term after migration."""
    monkeypatch.setattr("retrieval.signals.worker.CHECK_S", 0.02)
    settings = BUSY.model_copy(update={"check_hours": 2, "stale_days": 36_500})

    async def act(ready: Desk) -> None:
        async def checked() -> bool:
            return len(await ready.rows(CHECKS)) > 1

        async def passed() -> object:
            return await ready.rows("select 1 from brain.retrieval_metric_aggregate")

        await ready.ask(ABOUT)
        one = worker(ready, settings)
        async with working(one):
            await until(passed)
            assert not await checked()
            await ready.stage.sql(OVERDUE)
            await until(checked)
        limits = {"stale_days": 36_500, "units_min": 2, "units_max": 400}
        assert (await ready.rows(CHECKS))[1:] == [("schedule", None, limits, {"healthy": 1})]
        assert await ready.rows("select health ->> 'status' from brain.thread_partial") == [
            ("healthy",)
        ]
        async with working(worker(ready, settings)):
            await ready.ask("lost password")
            await until(lambda: ready.rows(TWO))
        assert len(await ready.rows(CHECKS)) == 2

    run(database, sidecar, snapshot, act, SEEN)


def test_threads_are_not_checked_when_that_is_off(
    database: Database, sidecar: VectorService, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.signals.worker.CHECK_S", 0.02)

    async def act(ready: Desk) -> None:
        await ready.stage.sql(OVERDUE)
        await ready.ask(ABOUT)
        one = worker(ready, BUSY.model_copy(update={"check_hours": 0}))
        async with working(one):
            await until(lambda: ready.rows("select 1 from brain.retrieval_metric_aggregate"))
        assert len(await ready.rows(CHECKS)) == 1

    run(database, sidecar, snapshot, act, SEEN)
