"""An answer that never left: its packs were delivered to nobody, and it is in no rate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.contract import Answer, CheckRequest, FeedbackRequest
from retrieval.stores.roles import LEDGER, dsn_for
from tests.retrieval.signals.desk import Desk
from tests.retrieval.signals.test_ledger import pack_id, run
from tests.services import Database, VectorService

Scene = Callable[[Callable[[Desk], Awaitable[None]]], None]


@pytest.fixture
def play(database: Database, sidecar: VectorService, snapshot: Snapshot) -> Scene:
    """Acts on a service of its own, with its worker at hand."""
    return lambda act: run(database, sidecar, snapshot, act)


async def called_back(ready: Desk, answer: Answer, name: str = "ann") -> Answer:
    """What the guard says of an answer that it kept back."""
    ask = ready.stage.envelope("withheld", ready.who(name), reference=str(answer.answer_id))
    return await ready.stage.retrieval.ask(ask)


async def spoken_of(ready: Desk, pack: UUID, name: str = "ann") -> list[object]:
    """What three operations that name a pack say of it."""
    who = ready.who(name)
    cited = {"pack_id": pack, "canonical_address": "u:limits", "source_revision": 1}
    check = CheckRequest.model_validate({"claims": [{"citations": [cited]}]})
    said = FeedbackRequest.model_validate({"pack_id": pack, "kind": "noisy_context"})
    asked = [
        await ready.stage.retrieval.ask(one)
        for one in (
            ready.stage.envelope("delivery", who, reference=str(pack)),
            ready.stage.envelope("check", who, check=check),
            ready.stage.envelope("feedback", who, feedback=said),
        )
    ]
    return [one.model_dump(exclude={"timings"}) for one in asked]


def test_a_pack_that_was_withheld_is_like_one_that_never_was(play: Scene) -> None:
    """Not found, not citable and not spoken about; another pack of the subject stays."""

    async def act(ready: Desk) -> None:
        kept, lost = await ready.ask("refund limits"), await ready.ask("refund limits")
        other = await ready.ask("refund limits", "bob")
        assert (await called_back(ready, lost)).status == 200
        absent = await spoken_of(ready, uuid4())
        assert await spoken_of(ready, pack_id(lost)) == absent
        assert await spoken_of(ready, pack_id(kept)) != absent
        assert await spoken_of(ready, pack_id(other), "bob") != absent
        rows = await ready.rows(
            "select kind from brain.retrieval_metric_event where kind like 'n%'"
        )
        assert len(rows) == 2, "of the other two"

    play(act)


def test_an_answer_that_was_withheld_last_is_in_no_rate(play: Scene) -> None:
    """Also where it replaced another one, which counts as little."""

    async def act(ready: Desk) -> None:
        ask = ready.stage.envelope("retrieve", ready.who("ann"), request={"query": "refund limits"})
        first = await ready.stage.retrieval.ask(ask)
        last = await ready.stage.retrieval.ask(ask.model_copy(update={"exclude": (UUID(int=7),)}))
        await ready.ask("zymurgy", "bob")
        for answer in (first, last):
            await called_back(ready, answer)
        await ready.settle()
        rates = await ready.rates()
        assert {of for _, of in rates.values()} == {1}, "bob's question and his pack alone"
        assert rates["thread_hit_rate"] == (0, 1)

    play(act)


def test_an_answer_that_was_made_again_without_any_exclusion_counts_once(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        ask = ready.stage.envelope("retrieve", ready.who("ann"), request={"query": "refund limits"})
        first = await ready.stage.retrieval.ask(ask)
        await ready.stage.retrieval.ask(ask)
        await called_back(ready, first)
        await ready.settle()
        assert (await ready.rates())["thread_hit_rate"] == (1, 1)

    play(act)


def test_the_pack_before_one_that_was_withheld_is_the_one_that_was_searched_on(
    play: Scene,
) -> None:
    async def act(ready: Desk) -> None:
        had = await ready.ask("refund limits")
        await called_back(ready, await ready.ask("lost password"))
        await ready.ask("zymurgy")
        await ready.settle()
        extra = "select pack_id from brain.retrieval_metric_event where kind = 'extra_search'"
        assert await ready.rows(extra) == [(pack_id(had),)]

    play(act)


def test_calling_back_twice_or_what_nobody_wrote_down_changes_nothing(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        lost = await ready.ask("refund limits")
        for _ in range(2):
            assert (await called_back(ready, lost)).status == 200
        strange = Answer(status=200, answer_id=uuid4())
        assert (await called_back(ready, strange)).status == 200
        assert (await called_back(ready, Answer(status=200))).code == "malformed_ask"
        kept = await ready.ask("refund limits")
        assert await spoken_of(ready, pack_id(kept)) != await spoken_of(ready, uuid4())

    play(act)


def test_one_subject_calls_back_nothing_of_another(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        bobs = await ready.ask("refund limits", "bob")
        await called_back(ready, bobs, "ann")
        found = await spoken_of(ready, pack_id(bobs), "bob")
        assert found != await spoken_of(ready, uuid4(), "bob")

    play(act)


def test_what_cannot_be_written_down_is_told(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        lost = await ready.ask("refund limits")
        await ready.stage.sql("alter table brain.answer_withheld rename to gone")
        assert (await called_back(ready, lost)).code == "store_unavailable"

    play(act)


def test_that_an_answer_was_withheld_is_kept_for_longer_than_the_answer(play: Scene) -> None:
    async def act(ready: Desk) -> None:
        lost = await ready.ask("refund limits")
        await called_back(ready, lost)
        for months, left in (2, 1), (3, 0):
            await ready.stage.sql(
                f"update brain.answer_withheld set noted_at = now() - '{months} mons 20d'::interval"
            )
            await ready.metric.execute("select brain.keep_partitions(1, 1, 3)")
            assert await ready.rows("select count(*) from brain.answer_withheld") == [(left,)]

    play(act)


@pytest.mark.parametrize(
    "statement",
    [
        "select query_id from brain.answer_withheld",
        "delete from brain.answer_withheld",
        "insert into brain.answer_withheld values (gen_random_uuid(), 'a', now())",
    ],
)
def test_the_ledger_says_what_was_withheld_and_nothing_else(
    database: Database, statement: str
) -> None:
    login = dsn_for(LEDGER, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())
