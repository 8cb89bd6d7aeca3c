"""From an answer to a signal, and whether the whole corpus has what was missed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from policies.snapshot import Snapshot
from retrieval.signals.inquiry import Inquiry, InquirySeal
from tests.retrieval.signals.desk import Desk
from tests.retrieval.signals.test_ledger import run
from tests.retrieval.world import (
    EMPLOYEE,
    OTHER_TENANT,
    SECRET,
    UNLABELLED,
    WITHDRAWN,
    Artifact,
    Label,
    Link,
    Thread,
    Unit,
    World,
    id_of,
)
from tests.services import Database, VectorService

SEEN = World(
    units=(
        Unit("u:a", "Refund limits", "Refunds are limited to thirty days."),
        Unit("u:b", "Refund forms", "The form for a refund."),
        Unit("u:c", "Lost passwords", "How to reset a password that is lost."),
    ),
    threads=(Thread("t:refunds", "Refund limits"),),
    links=(Link("t:refunds", "u:a"), Link("t:refunds", "u:b")),
)
ABOUT = "payroll calendar"


def hidden(label: Label) -> World:
    """A thread with its units, all under one label."""
    return World(
        units=(
            Unit("h:a", "Payroll calendar", "The payroll calendar of the year.", label),
            Unit("h:b", "Payroll days", "Payroll runs on the last day.", label),
        ),
        threads=(Thread("h:t", "Payroll calendar", label=label),),
        links=(Link("h:t", "h:a"), Link("h:t", "h:b")),
    )


@pytest.mark.parametrize("label", [EMPLOYEE, SECRET, WITHDRAWN, OTHER_TENANT])
def test_what_an_audience_may_not_read_is_no_gap_of_the_corpus(
    database: Database, sidecar: VectorService, snapshot: Snapshot, label: Label
) -> None:
    """Asked often enough to be routed, and routed nowhere."""

    async def act(ready: Desk) -> None:
        await ready.stage.put(hidden(label))
        for who in ("ann", "bob", "eve"):
            await ready.ask(ABOUT, who)
        await ready.settle()
        assert await ready.signals() == {
            "missing_thread": "not_for_audience",
            "search_gap": "not_for_audience",
        }
        assert await ready.rows("select 1 from brain.decision_backlog") == []
        assert await ready.rows("select 1 from brain.segmentation_health") == []
        assert await ready.rows("select 1 from gate.governance_queue") == []
        assert await ready.rows("select 1 from brain.gap_term") == []
        assert (await ready.rates())["missing_thread_rate"] == (0, 3)

    run(database, sidecar, snapshot, act, SEEN)


@pytest.mark.parametrize("world", [World(), hidden(UNLABELLED)])
def test_what_nobody_could_be_answered_is_absent(
    database: Database, sidecar: VectorService, snapshot: Snapshot, world: World
) -> None:
    """What stands in quarantine is readable by nobody."""

    async def act(ready: Desk) -> None:
        await ready.stage.put(world)
        await ready.ask(ABOUT)
        await ready.settle()
        assert await ready.signals() == {"missing_thread": "absent", "search_gap": "absent"}
        assert (await ready.rates())["missing_thread_rate"] == (1, 1)

    run(database, sidecar, snapshot, act, SEEN)


def test_units_without_a_thread_are_a_missing_thread_and_no_search_gap(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await ready.ask("lost password")
        await ready.settle()
        assert await ready.signals() == {"missing_thread": "absent"}

    run(database, sidecar, snapshot, act, SEEN)


def test_an_empty_corpus_is_a_gap_at_the_first_question(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        answer = await ready.ask(ABOUT)
        assert answer.response is not None
        assert answer.response.mode == "none"
        await ready.settle()
        assert await ready.signals() == {"missing_thread": "absent", "search_gap": "absent"}

    run(database, sidecar, snapshot, act, World())


def test_a_question_that_did_not_reach_the_worker_is_counted_and_stays_unclassified(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await ready.listening.execute("unlisten *")
        for who in ("ann", "bob", "eve"):
            await ready.ask(ABOUT, who)
        await ready.settle()
        assert await ready.signals() == {"missing_thread": "unknown"}
        assert await ready.rows("select 1 from brain.decision_backlog") == []
        assert (await ready.rates())["missing_thread_rate"] == (0, 3)

    run(database, sidecar, snapshot, act, SEEN)


@pytest.mark.parametrize("world", [SEEN, World()])
def test_a_raw_search_is_the_callers_wish_and_no_gap(
    database: Database, sidecar: VectorService, snapshot: Snapshot, world: World
) -> None:
    """Not even when it finds nothing."""

    async def act(ready: Desk) -> None:
        await ready.stage.retrieve(ABOUT, mode="raw")
        assert await ready.classify() == 0
        await ready.settle()
        assert await ready.signals() == {}

    run(database, sidecar, snapshot, act, world)


def test_a_thread_that_one_audience_finds_empty_is_weak_for_that_audience(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Its title is public, its units are not."""
    world = hidden(EMPLOYEE)
    world = replace(world, threads=(Thread("h:t", "Payroll calendar"),))

    async def act(ready: Desk) -> None:
        await ready.ask(ABOUT)
        await ready.settle()
        found = await ready.rows(
            "select kind, classification, thread_id from brain.search_gap_signal"
            " where kind = 'weak_thread'"
        )
        assert found == [("weak_thread", "not_for_audience", id_of("h:t"))]

    run(database, sidecar, snapshot, act, SEEN + world)


def test_a_thread_that_holds_one_unit_is_weak_for_everybody(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    world = replace(SEEN, links=SEEN.links[:1])

    async def act(ready: Desk) -> None:
        await ready.ask("refund limits")
        await ready.settle()
        assert await ready.signals() == {"weak_thread": "absent"}

    run(database, sidecar, snapshot, act, world)


@pytest.mark.parametrize(("filler", "classification"), [
    (None, "absent"),
    (Unit("u:test", "Refund test", "A test of refunds.", EMPLOYEE.of("test"), "test"),
     "not_for_audience"),
])  # fmt: skip
def test_an_expected_artifact_is_missing_for_an_audience_or_for_everybody(
    database: Database,
    sidecar: VectorService,
    snapshot: Snapshot,
    filler: Unit | None,
    classification: str,
) -> None:
    world = SEEN + World(
        artifacts=(Artifact("t:refunds", "Test of refunds", "test", Label(kind="test")),)
    )
    if filler is not None:
        world += World(units=(filler,), links=(Link("t:refunds", filler.address),))

    async def act(ready: Desk) -> None:
        await ready.ask("refund limits")
        await ready.settle()
        rows = await ready.rows(
            "select kind, classification, thread_id, artifact_id from brain.search_gap_signal"
        )
        assert rows == [
            (
                "expected_artifact_missing",
                classification,
                id_of("t:refunds"),
                id_of("t:refunds expects Test of refunds"),
            )
        ]

    run(database, sidecar, snapshot, act, world)


def test_a_pack_that_the_guard_refused_shows_no_gap_and_the_one_that_left_does(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Both lack the artifact, only the second holds one unit."""
    world = SEEN + World(
        artifacts=(Artifact("t:refunds", "Test of refunds", "test", Label(kind="test")),)
    )

    async def act(ready: Desk) -> None:
        ask = ready.stage.envelope("retrieve", ready.who("ann"), request={"query": "refund limits"})
        await ready.stage.retrieval.ask(ask)
        again = ask.model_copy(update={"exclude": (id_of("u:b"),)})
        await ready.stage.retrieval.ask(again)
        await ready.stage.retrieval.ask(again.model_copy(update={"request_id": "another"}))
        await ready.settle()
        found = await ready.rows(
            "select kind, occurrences from brain.search_gap_signal order by kind"
        )
        assert found == [("expected_artifact_missing", 2), ("weak_thread", 2)]

    run(database, sidecar, snapshot, act, world)


def test_a_pack_beside_the_point_makes_a_noisy_thread(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        answer = await ready.ask("refund limits")
        await ready.say(answer, "noisy_context")
        await ready.settle()
        assert await ready.signals() == {"noisy_thread": "absent"}

    run(database, sidecar, snapshot, act, SEEN)


def test_the_same_question_on_one_day_is_one_signal_however_often_a_pass_runs(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        for who, words in (("ann", ABOUT), ("ann", "Calendar, payroll?"), ("bob", ABOUT)):
            await ready.ask(words, who)
        for _ in range(3):
            await ready.settle()
        counted = await ready.rows(
            "select kind, occurrences, subjects from brain.search_gap_signal order by kind"
        )
        assert counted == [("missing_thread", 3, 2), ("search_gap", 3, 2)]

    run(database, sidecar, snapshot, act, SEEN)


def test_what_travels_is_sealed_and_what_is_not_ours_is_no_inquiry() -> None:
    seal, other = InquirySeal("secret"), InquirySeal("another")
    inquiry = Inquiry(id_of("q"), "where is the payroll calendar \ud800")
    token = seal.close(inquiry)
    assert token is not None
    assert "payroll" not in token
    assert seal.open(token) == inquiry
    assert other.open(token) is None
    assert seal.open("anything") is None
    assert seal.open(token[:-8]) is None


def test_the_longest_question_travels_or_is_left_out_but_never_breaks_an_answer(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """4,000 characters that no compression makes smaller."""
    rng = random.Random(11)
    hard = "".join(chr(rng.randrange(0x10000, 0x2FFFF)) for _ in range(4_000))

    async def act(ready: Desk) -> None:
        for query in (hard, "word " * 800):
            assert (await ready.ask(query)).status == 200

    run(database, sidecar, snapshot, act, SEEN)
