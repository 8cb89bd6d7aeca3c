"""What had no room among signals is counted, and told as numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.signals.left_out import LeftOut, left_out
from retrieval.stores.roles import WATCH, dsn_for
from tests.retrieval.signals.desk import Desk
from tests.retrieval.signals.test_gaps import ABOUT, SEEN
from tests.retrieval.signals.test_ledger import run
from tests.retrieval.signals.test_shares import many, meet, route
from tests.retrieval.signals.test_worker import leads, until, worker, working
from tests.services import Database, VectorService

Scene = Callable[[Callable[[Desk], Awaitable[None]]], None]


@pytest.fixture
def play(database: Database, sidecar: VectorService, snapshot: Snapshot) -> Scene:
    """Acts on a service of its own, with its worker at hand."""
    return lambda act: run(database, sidecar, snapshot, act, SEEN)


async def told(ready: Desk) -> LeftOut:
    return await left_out(ready.stage.database.url, ready.stage.database.secret)


async def counted(ready: Desk, questions: dict[str, int]) -> bool:
    return (await told(ready)).questions == questions


def test_nothing_is_told_where_nothing_was_left_out(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        assert await told(ready) == LeftOut()

    play(act)


def test_gaps_without_room_are_told_by_audience_and_for_today_only(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        await meet(ready, "ann", *many("flood", 9))
        await meet(ready, "eve", *many("eve's", 3), audience="partner")
        await route(ready, 2, 100)
        assert (await told(ready)).gaps == {"customer": 7, "partner": 1}
        await ready.stage.sql("update brain.signal_overflow set day = day - 1")
        assert (await told(ready)).gaps == {}

    play(act)


def test_questions_that_nobody_looked_at_are_counted_by_what_had_no_room(
    play: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann has two looks of a turn and all together have three; a worker that follows counts on."""
    monkeypatch.setattr("retrieval.signals.classify.SUBJECT_QUESTIONS_MAX", 2)
    monkeypatch.setattr("retrieval.signals.worker.INQUIRIES_MAX", 3)
    monkeypatch.setattr("retrieval.signals.worker.BEAT_S", 0.02)

    async def act(ready: Desk) -> None:
        slow = ready.settings.model_copy(update={"period_s": 600.0})
        for turns in (1, 2):
            async with working(one := worker(ready, slow)):
                await until(partial(leads, one))
                for number in range(4):
                    await ready.ask(f"{ABOUT} {number}", "ann")
                for _ in range(3):
                    await ready.ask(ABOUT, "bob")
                await until(partial(counted, ready, {"subject": 2 * turns, "turn": 2 * turns}))

    play(act)


@pytest.mark.parametrize("table", ["brain.signal_overflow", "brain.signal_worker"])
def test_whoever_tells_the_numbers_reads_no_table_of_signals(
    database: Database, table: str
) -> None:
    login = dsn_for(WATCH, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(f"select * from {table}".encode())
