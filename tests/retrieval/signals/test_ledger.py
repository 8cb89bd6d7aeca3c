"""What is written down of an answer, before it leaves, and who may read it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.contract import Answer
from retrieval.stores.roles import LEDGER, dsn_for
from tests.retrieval.signals.desk import Desk, desk
from tests.retrieval.world import Artifact, Link, Thread, Unit, World, id_of, subject
from tests.services import Database, VectorService

WORLD = World(
    units=(
        Unit("u:limits", "Refund limits", "Refunds are limited to thirty days."),
        Unit("u:doubt", "Refund doubts", "Refunds may be doubtful."),
        Unit("u:password", "Passwords", "How to reset a password."),
    ),
    threads=(Thread("t:refunds", "Refund limits"),),
    links=(Link("t:refunds", "u:limits"), Link("t:refunds", "u:doubt", confidence=0.2)),
    artifacts=(Artifact("t:refunds", "Test of refunds", "test"),),
)

DELIVERY = (
    "select query_id, subject_id, audience, profile, mode, fallback_reason, thread_id, unit_ids,"
    " addresses, revisions, suspect_ids, gap_ids, query_hmac, policy_digest"
    " from brain.pack_delivery where pack_id = %s"
)


def run(
    database: Database, sidecar: VectorService, snapshot: Snapshot, act: Any, world: World = WORLD
) -> Any:
    async def inside() -> Any:
        async with desk(database, sidecar, snapshot) as ready:
            await ready.stage.put(world)
            return await act(ready)

    return asyncio.run(inside())


def pack_id(answer: Answer) -> UUID:
    assert answer.response is not None, answer
    return answer.response.packs[0].pack_id


def test_a_pack_is_written_down_with_what_may_be_cited_and_must_be_surfaced(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        answer = await ready.ask("refund limits", "ann")
        (row,) = await ready.rows(DELIVERY, pack_id(answer))
        _, who, audience, profile, mode, reason, thread, units, addresses, revisions, *rest = row
        suspects, gaps, question, digest = rest
        assert (who, audience, profile, mode, reason) == (
            "ann", "customer", "customer", "single", None,
        )  # fmt: skip
        assert thread == id_of("t:refunds")
        assert dict(zip(addresses, units, strict=True)) == {
            name: id_of(name) for name in ("u:limits", "u:doubt")
        }
        assert revisions == [1, 1]
        assert suspects == [id_of("u:doubt")]
        assert gaps == [id_of("t:refunds expects Test of refunds")]
        assert len(question) == 64
        assert digest == snapshot.digest

    run(database, sidecar, snapshot, act)


def test_no_word_of_a_question_and_no_subject_stands_among_events_and_signals(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Every table of ours as text, but for the corpus and the subject's own deliveries."""

    async def act(ready: Desk) -> None:
        await ready.ask("xylophone zymurgy", "subject-of-that-name")
        await ready.ask("zymurgy of the xylophone", "subject-of-that-name")
        await ready.settle()
        tables = await ready.rows(
            "select c.oid::regclass::text from pg_class c join pg_namespace n"
            " on n.oid = c.relnamespace where n.nspname in ('brain', 'gate')"
            " and c.relkind in ('r', 'm') and c.relname not like 'pack_delivery%'"
        )
        for (table,) in tables:
            text = str(await ready.rows(f"select t::text from {table} t"))
            for word in ("xylophone", "zymurg", "subject-of-that-name"):
                assert word not in text, table
        same = await ready.rows("select distinct query_hmac from brain.pack_delivery")
        assert len(same) == 1, "the same words in another order are the same question"

    run(database, sidecar, snapshot, act)


def test_an_answer_that_cannot_be_written_down_is_not_handed_out(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await ready.stage.sql("alter table brain.pack_delivery rename to pack_delivery_gone")
        answer = await ready.ask("refund limits")
        assert (answer.status, answer.code) == (503, "store_unavailable")
        assert answer.response is None
        await ready.stage.sql("alter table brain.pack_delivery_gone rename to pack_delivery")
        assert (await ready.ask("refund limits")).status == 200

    run(database, sidecar, snapshot, act)


def test_a_subject_reads_its_own_deliveries_and_no_other(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        mine, other = await ready.ask("refund limits", "ann"), await ready.ask("password", "bob")
        truth = ready.stage.retrieval._truth
        for who, seen in (("ann", {pack_id(mine)}), ("bob", {pack_id(other)}), ("eve", set())):
            placed = subject("customer", snapshot).model_copy(update={"subject_id": who})
            async with truth.reading(placed, snapshot) as reader:
                found = await reader._rows("select pack_id from brain.pack_delivery")
            assert {row[0] for row in found} == seen

    run(database, sidecar, snapshot, act)


def test_what_is_said_twice_is_one_event_on_the_day_of_the_answer(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        answer = await ready.ask("refund limits", "ann")
        for _ in range(3):
            await ready.say(answer, "noisy_context", "ann")
        rows = await ready.rows(
            "select e.kind, e.at = q.at from brain.retrieval_metric_event e"
            " join brain.retrieval_metric_event q on q.id = e.query_id"
            " where e.kind not in ('query', 'pack')"
        )
        assert rows == [("noisy_context", True)]

    run(database, sidecar, snapshot, act)


@pytest.mark.parametrize(
    "statement",
    [
        "select * from brain.pack_delivery",
        "select * from brain.retrieval_metric_event",
        "update brain.pack_delivery set subject_id = 'x'",
        "delete from brain.retrieval_metric_event",
        "select * from brain.search_gap_signal",
        "select * from brain.decision_backlog",
        "select * from brain.unit",
        "select brain.keep_partitions(1, 1, 1)",
        "select brain.route_signals(1, false, 1, 1)",
        "insert into brain.retrieval_metric_event select gen_random_uuid(), now(), now(),"
        " 'missing_thread', gen_random_uuid(), 'r', repeat('a', 64), 'a', 'p', 'd', 'auto', 'none'",
    ],
)
def test_the_ledger_inserts_and_does_nothing_else(database: Database, statement: str) -> None:
    login = dsn_for(LEDGER, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_a_pack_that_the_guard_had_made_again_is_told_as_such(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        ask = ready.stage.envelope("retrieve", ready.who("ann"), request={"query": "refund limits"})
        ask = ask.model_copy(update={"request_id": str(uuid4())})
        await ready.stage.retrieval.ask(ask)
        await ready.stage.retrieval.ask(ask.model_copy(update={"exclude": (id_of("u:doubt"),)}))
        await ready.settle()
        assert (await ready.rates())["thread_hit_rate"] == (1, 1)

    run(database, sidecar, snapshot, act)
