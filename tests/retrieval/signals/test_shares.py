"""One subject's flood: what of it is looked at, what is routed, and what others still get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import LiteralString

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.stores.roles import STEWARD, dsn_for
from tests.retrieval.signals.desk import Desk
from tests.retrieval.signals.test_gaps import ABOUT, SEEN
from tests.retrieval.signals.test_ledger import run
from tests.services import Database, VectorService

NAMES = ("ann", "bob", "eve", "anonymous")
ROOMS = "select audience, gaps from brain.signal_overflow order by audience"


async def meet(
    ready: Desk, name: str, *gaps: str, times: int = 2, audience: str = "customer"
) -> None:
    """One subject meets these gaps so often. Each is a thread that holds nothing."""
    await ready.stage.sql(
        "insert into brain.retrieval_metric_event (id, at, kind, query_id, request_id, consumer,"
        " audience, profile, policy_digest, asked, mode, query_hmac, weak_ids)"
        " select gen_random_uuid(), now(), 'query', gen_random_uuid(), 'r', %s, %s, %s, 'd',"
        " 'auto', 'fallback', repeat('a', 64), array(select md5(g)::uuid from unnest(%s::text[]) g)"
        " from generate_series(1, %s)",
        (ready.ledger.consumer(name), audience, audience, list(gaps), times),
    )


def many(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {number}" for number in range(count)]


async def route(ready: Desk, by_subject: int, by_audience: int) -> None:
    """One pass, with room for so many."""
    await ready.own.execute("select brain.derive_signals(2)")
    await ready.own.execute(
        "select brain.route_signals(2, false, %s, %s)", [by_subject, by_audience]
    )


async def routed(ready: Desk) -> Counter[str]:
    """How many gaps of the backlog each subject met first."""
    names = {ready.ledger.consumer(name): name for name in NAMES}
    rows = await ready.rows(
        "select s.met_by from brain.decision_backlog b"
        " join brain.search_gap_signal s using (dedup_key)"
    )
    return Counter(names[row[0]] for row in rows)


Scene = Callable[[Callable[[Desk], Awaitable[None]]], None]


@pytest.fixture
def play(database: Database, sidecar: VectorService, snapshot: Snapshot) -> Scene:
    """Acts on a service of its own, with its worker at hand."""
    return lambda act: run(database, sidecar, snapshot, act, SEEN)


def test_a_flood_of_one_subject_fills_its_own_share_of_a_day_and_no_more(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        await meet(ready, "ann", *many("flood", 40))
        await meet(ready, "bob", "a gap")
        for _ in range(2):
            await route(ready, 3, 100)
            assert await routed(ready) == {"ann": 3, "bob": 1}
        assert await ready.rows(ROOMS) == [("customer", 37)]
        for table in ("brain.segmentation_health", "gate.governance_queue"):
            assert await ready.rows(f"select count(*) from {table}") == [(4,)]
        await ready.stage.sql(
            "update brain.decision_backlog set opened_at = opened_at - '1d'::interval"
        )
        await route(ready, 3, 100)
        assert await routed(ready) == {"ann": 6, "bob": 1}, "another day, another share"

    play(act)


def test_subjects_take_turns_for_the_room_of_their_audience(play: Scene) -> None:
    """The flood was first and its gaps were met more often. Each audience has its own room."""

    async def act(ready: Desk) -> None:
        await meet(ready, "ann", *many("flood", 40), times=9)
        await meet(ready, "bob", *many("bob's", 3))
        await meet(ready, "eve", *many("eve's", 2), audience="partner")
        await route(ready, 30, 4)
        assert await routed(ready) == {"ann": 2, "bob": 2, "eve": 2}
        assert await ready.rows(ROOMS) == [("customer", 39)]

    play(act)


def test_a_gap_that_others_met_too_goes_before_what_its_first_subject_met_alone(
    play: Scene,
) -> None:
    async def act(ready: Desk) -> None:
        await meet(ready, "ann", *many("flood", 40), times=9)
        for who in ("ann", "bob"):
            await meet(ready, who, "common", times=1)
        await route(ready, 1, 100)
        assert await ready.rows("select subjects, occurrences from brain.decision_backlog") == [
            (2, 2)
        ]

    play(act)


def test_callers_without_a_name_share_one_share(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        await meet(ready, "anonymous", *many("flood", 9))
        await meet(ready, "ann", "a gap")
        await route(ready, 2, 100)
        assert await routed(ready) == {"anonymous": 2, "ann": 1}

    play(act)


def test_what_found_no_room_is_forgotten_unless_it_is_met_again(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        await meet(ready, "ann", "one", "two")
        await route(ready, 1, 100)
        await ready.stage.sql(
            "update brain.search_gap_signal set day = day - 3, last_at = last_at - '3d'::interval,"
            " first_at = first_at - '3d'::interval"
        )
        await ready.stage.sql("delete from brain.retrieval_metric_event")
        await ready.stage.sql(
            "update brain.decision_backlog set opened_at = now() - '3d'::interval"
        )
        await route(ready, 100, 100)
        assert await routed(ready) == {"ann": 1}
        await meet(ready, "bob", "one", "two", times=1)
        await route(ready, 100, 100)
        assert await ready.rows("select occurrences from brain.decision_backlog") == [(3,), (3,)]

    play(act)


def test_what_was_routed_once_is_kept_up_to_date_whatever_the_room(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        await meet(ready, "ann", "one", "two")
        await route(ready, 2, 2)
        await meet(ready, "ann", "one", "two", *many("flood", 9), times=3)
        await route(ready, 2, 2)
        assert await ready.rows("select occurrences from brain.decision_backlog") == [(5,), (5,)]

    play(act)


def test_a_flood_of_questions_leaves_the_worker_time_for_others(
    play: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.signals.classify.SUBJECT_QUESTIONS_MAX", 2)

    async def act(ready: Desk) -> None:
        for number in range(4):
            await ready.ask(f"{ABOUT} {number}", "ann")
        await ready.ask(ABOUT, "bob")
        assert await ready.classify() == 3
        looked_at = await ready.rows(
            "select e.consumer, count(distinct s.query_hmac) from brain.search_gap_signal s"
            " join brain.retrieval_metric_event e using (query_hmac) group by e.consumer"
        )
        names = {ready.ledger.consumer(name): name for name in NAMES}
        assert {names[one]: count for one, count in looked_at} == {"ann": 2, "bob": 1}

    play(act)


@pytest.mark.parametrize(
    "asked",
    [
        "select met_by from brain.search_gap_signal",
        "select consumer from brain.retrieval_answered",
        "select request_id from brain.retrieval_answered",
        "select consumer from brain.retrieval_metric_event",
        "select subject_id from brain.pack_delivery",
    ],
)
def test_owners_are_not_told_who_met_a_gap(database: Database, asked: LiteralString) -> None:
    """Nor whose question it was, also not as a hash that is the same for all of one person's."""
    login = dsn_for(STEWARD, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(asked)


@pytest.mark.parametrize("rooms", [(0, 1), (1, 0), (None, 1), (1, None)])
def test_no_room_at_all_is_refused(play: Scene, rooms: tuple[int | None, int | None]) -> None:
    async def act(ready: Desk) -> None:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            await ready.own.execute("select brain.route_signals(2, false, %s, %s)", list(rooms))

    play(act)
