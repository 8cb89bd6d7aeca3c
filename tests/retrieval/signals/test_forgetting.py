"""Gaps that nobody meets any more, and old checks, go with the events of their time."""

from __future__ import annotations

import psycopg
import pytest
from pydantic import ValidationError

from policies.snapshot import Snapshot
from retrieval.signals.settings import SignalSettings
from retrieval.stores.roles import METRIC, dsn_for
from tests.retrieval.signals.desk import Desk
from tests.retrieval.signals.test_gaps import ABOUT, SEEN
from tests.retrieval.signals.test_ledger import run
from tests.retrieval.signals.test_routing import DESTINATIONS, close
from tests.services import Database, VectorService

KEPT = ("brain.thread_proposal", "brain.gap_term", *DESTINATIONS)


async def grow_old(ready: Desk, months: int) -> None:
    """Everything that was met was met so long ago; nothing is left to be counted anew."""
    await ready.stage.sql("delete from brain.retrieval_metric_event")
    await ready.stage.sql(
        f"update brain.search_gap_signal set last_at = now() - '{months} mons 1d'::interval"
    )
    for table in DESTINATIONS:
        await ready.stage.sql(f"update {table} set last_at = now() - '{months} mons 1d'::interval")


async def left(ready: Desk) -> dict[str, int]:
    return {
        table: (await ready.rows(f"select count(*) from {table}"))[0][0]
        for table in (*KEPT, "brain.capability_intake", "brain.signal_overflow")
    }


def test_a_gap_goes_with_its_events_and_takes_its_words_and_its_proposal_along(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        for _ in range(2):
            await ready.ask(ABOUT)
        await ready.settle()
        await close(ready, "done")
        await ready.ask(ABOUT)
        await ready.settle()
        await ready.stage.sql("insert into brain.signal_overflow select current_date - 500, 'a', 1")
        kept = ready.settings.events_kept_months
        await grow_old(ready, kept - 1)
        await ready.settle()
        before = await left(ready)
        assert min(before[table] for table in (*KEPT, "brain.capability_intake")) > 0
        assert before["brain.signal_overflow"] == 0
        await grow_old(ready, kept)
        await ready.settle()
        assert await left(ready) == before, "what was done just now is remembered"
        for table in DESTINATIONS:
            await ready.stage.sql(f"update {table} set done_at = null")
        await ready.settle()
        assert set((await left(ready)).values()) == {0}

    run(database, sidecar, snapshot, act, SEEN)


def test_what_is_still_met_keeps_its_item_and_its_words(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        for _ in range(2):
            await ready.ask(ABOUT)
        await ready.settle()
        before = await left(ready)
        await ready.metric.execute("select brain.forget_gaps(1)")
        assert await left(ready) == before
        assert before["brain.gap_term"] == 4

    run(database, sidecar, snapshot, act, SEEN)


def test_a_check_of_threads_goes_with_its_time_but_the_last_of_each_source_stays(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """A worker that found no last check would begin another one at once."""

    async def act(ready: Desk) -> None:
        kept = ready.settings.events_kept_months
        await ready.stage.sql("delete from brain.thread_check")
        for name, source in ("all", "null"), ("one", "'one'"), ("two", "'two'"):
            for months, age in (kept - 1, "young"), (kept, "old"), (kept + 2, "older"):
                if (name, age) == ("all", "young"):
                    continue
                await ready.stage.sql(
                    "insert into brain.thread_check (checked_at, made_by, source, limits, found)"
                    f" values (now() - '{months} mons 1d'::interval, 'command', {source}, '{{}}',"
                    f" '{{\"{name} {age}\": 1}}')"
                )
        await ready.settle()
        left = await ready.rows(
            "select w.word from brain.thread_check, jsonb_object_keys(found) w (word)"
        )
        assert {word for (word,) in left} == {"all old", "one young", "two young"}

    run(database, sidecar, snapshot, act, SEEN)


@pytest.mark.parametrize("forget", ["forget_gaps", "forget_checks"])
@pytest.mark.parametrize("kept", ["0", "null"])
def test_nothing_goes_before_a_month_is_over(database: Database, forget: str, kept: str) -> None:
    login = dsn_for(METRIC, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InvalidParameterValue),
    ):
        connection.execute(f"select brain.{forget}({kept})".encode())


def test_a_delivery_is_kept_no_longer_than_what_is_said_of_it() -> None:
    with pytest.raises(ValidationError, match="longer than `events_kept_months`"):
        SignalSettings(events_kept_months=1)
    assert SignalSettings(events_kept_months=1, deliveries_kept_months=1)
