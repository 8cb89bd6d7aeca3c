"""What a missing store, a foreign policy or a used-up deadline turn an answer into."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from policies.snapshot import Snapshot
from retrieval.contract import Answer
from retrieval.embedded import Embedded
from retrieval.embedded.processes import command_of
from retrieval.schema.migrate import migrate
from tests.retrieval.service.sample import SAMPLE
from tests.retrieval.stage import Prepared, Stage, prepared, wire
from tests.retrieval.world import subject
from tests.services import Database, VectorService, embedded_pair

QUESTION = "refunds and returns"
OFF_TOPIC = "what is the weather in Paris tomorrow"


@pytest.fixture
def own_pair() -> Iterator[Embedded]:
    """Services that this test may kill."""
    with embedded_pair() as pair:
        yield pair


def _prepared(pair: Embedded, snapshot: Snapshot) -> Prepared:
    database = Database(url=pair.database_url, secret=pair.database_secret, name="")
    migrate(database.url, database.secret, snapshot)
    vectors = VectorService(pair.qdrant_url, pair.qdrant_api_key)
    return prepared(database, vectors, snapshot, SAMPLE)


def _end(pid: int, how: signal.Signals) -> None:
    os.kill(pid, how)
    while command_of(pid) is not None:
        os.sched_yield()


def _codes(answers: list[Answer]) -> list[tuple[int, str]]:
    return [(answer.status, answer.code) for answer in answers]


def test_without_vectors_threads_are_served_in_full_and_nothing_else(
    own_pair: Embedded, snapshot: Snapshot
) -> None:
    """Mandated by issue 2: degraded thread hits, `index_unavailable` for the rest; and a hung
    engine is as good as a dead one."""
    engine = own_pair.pids["qdrant"]

    async def act(stage: Stage) -> tuple[list[Answer], list[Answer]]:
        whole = [
            await stage.retrieve(QUESTION),
            await stage.retrieve("anything", thread="thread:accounts"),
            await stage.pack("thread:refunds"),
        ]
        os.kill(engine, signal.SIGSTOP)
        hung = await stage.retrieve(QUESTION)
        os.kill(engine, signal.SIGCONT)
        _end(engine, signal.SIGKILL)
        served = [
            await stage.retrieve(QUESTION),
            await stage.retrieve("anything", thread="thread:accounts"),
            await stage.pack("thread:refunds"),
        ]
        refused = [
            await stage.retrieve(OFF_TOPIC),
            await stage.retrieve(QUESTION, mode="raw"),
            await stage.retrieve("holiday calendar"),
        ]
        assert (await stage.unit("faq:reset")).status == 200
        health = await stage.retrieval.health()
        assert (health["ready"], health["vectors"]["qdrant"]) == (True, "down")
        for before, after in zip([*whole, whole[0]], [*served, hung], strict=True):
            assert before.response is not None
            assert after.response is not None
            assert before.response.degraded == ()
            assert after.response.degraded == ("vector",)
            assert wire(before) == wire(after).replace('"degraded":["vector"]', '"degraded":[]')
        return served, refused

    _, refused = _prepared(own_pair, snapshot).run(act)
    assert _codes(refused) == [(503, "index_unavailable")] * 3
    assert all(answer.response is None for answer in refused)


def test_without_the_record_of_truth_everything_is_refused(
    own_pair: Embedded, snapshot: Snapshot
) -> None:
    """Mandated by issue 2: Postgres down, every guarded route is 503."""

    async def act(stage: Stage) -> list[Answer]:
        _end(own_pair.pids["postgres"], signal.SIGQUIT)
        answers = [
            await stage.retrieve(QUESTION),
            await stage.unit("faq:reset", "partner"),
            await stage.pack("thread:refunds", "employee"),
        ]
        assert (await stage.retrieval.health())["ready"] is False
        return answers

    refused = _prepared(own_pair, snapshot).run(act)
    assert _codes(refused) == [(503, "store_unavailable")] * 3


def test_a_subject_of_another_policy_is_sent_back(sample: Prepared) -> None:
    """Mandated by architecture section 6: never an empty result; the gateway places it again."""

    async def act(stage: Stage) -> list[Answer]:
        foreign = stage.subject("customer").model_copy(update={"policy_digest": "0" * 64})
        unknown = subject("customer", stage.snapshot, profiles=("nobody",))
        return [await stage.retrieve(QUESTION, one) for one in (foreign, unknown)]

    assert _codes(sample.run(act)) == [(409, "policy_mismatch")] * 2


def test_a_database_under_another_policy_is_a_mismatch(own_sample: Prepared) -> None:
    """The revision that the database enforces is checked in the transaction that reads."""

    async def act(stage: Stage) -> list[Answer]:
        await stage.sql("update gate.active_revision set digest = repeat('0', 64)")
        return [await stage.retrieve(QUESTION), await stage.unit("faq:reset")]

    assert _codes(own_sample.run(act)) == [(409, "policy_mismatch")] * 2


@pytest.mark.parametrize("deadline_ms", [0, -5, 1])
def test_no_time_left_is_a_refusal(sample: Prepared, deadline_ms: int) -> None:
    """Chosen by us: work is cancelled, and what it had so far is not sent."""

    async def act(stage: Stage) -> Answer:
        ask = stage.envelope("pack", "customer", reference="thread:refunds")
        return await stage.retrieval.ask(ask.model_copy(update={"deadline_ms": deadline_ms}))

    answer = sample.run(act)
    assert (answer.status, answer.code) == (503, "deadline_exceeded")
    assert answer.response is None


def test_a_cancelled_request_gives_its_connection_back(sample: Prepared) -> None:
    """More cancelled requests than connections; then a whole one is served."""

    async def act(stage: Stage) -> Answer:
        ask = stage.envelope("pack", "customer", reference="thread:refunds")
        for _ in range(6):
            await stage.retrieval.ask(ask.model_copy(update={"deadline_ms": 2}))
        return await stage.pack("thread:refunds")

    assert sample.run(act).status == 200


@pytest.mark.parametrize("operation", ["retrieve", "pack", "unit"])
def test_an_envelope_without_its_object_is_refused(sample: Prepared, operation: str) -> None:
    """A fault of the gateway's is named as one."""

    async def act(stage: Stage) -> Answer:
        return await stage.retrieval.ask(stage.envelope(operation, "customer"))

    answer = sample.run(act)
    assert (answer.status, answer.code) == (400, "malformed_ask")
