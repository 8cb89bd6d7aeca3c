"""One layer is broken by hand: another one catches it, one event says so, and nothing leaves.

Provenance: the issue's "Must hold" on fault injection; architecture section 6 ("What an event
is"): the caller gets the answer that it would get had the unit never existed.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.compose import data_path
from gateway.compose.failure import CannotStart
from retrieval.app import RetrievalApp
from retrieval.contract import Answer, Ask, Governed, Phase
from retrieval.embed.hashing import HashingEmbedder
from retrieval.embedded import Embedded
from retrieval.ingest.identity import thread_id, unit_id
from tests.gateway.cli.made import environment
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import (
    PUBLIC,
    Composed,
    Record,
    Reply,
    composed,
    ids_of,
    thread,
    unit,
)

RETRIEVAL_PHASES = {f"retrieval.{phase}" for phase in Phase}
CANARY = "zirconium-heron"
_FIT = re.compile(rb'"score":[0-9.]+,"signal_breakdown":\[[^\]]*\]')
SECRET = "law/secret"
HIDDEN = {"visibility": "internal"}
QUERY = f"returning goods limit {CANARY}"
WORLD: tuple[Record, ...] = (
    thread("thread/returns", "Returning goods"),
    unit("law/returns", "Goods may be returned within thirty days.", thread="thread/returns"),
    unit("faq/returns", "Returning goods is free of charge.", thread="thread/returns"),
    unit("faq/shipping", "Shipping takes two days. The limit is ten parcels."),
)


def secret(**changes: object) -> Record:
    """A unit that answers the question best, in the thread that everybody may read."""
    body = f"Returning goods: the limit is {CANARY}."
    return unit(SECRET, body, **{"thread": "thread/returns", **changes})


ISSUERS = Issuers()


@pytest.fixture
def env(services: Embedded, database: Database, tmp_path: Path) -> dict[str, str]:
    return environment(services, database, tmp_path)


def play(env: dict[str, str], tmp_path: Path, scene: Callable[[Composed], Awaitable[None]]) -> None:
    """Run a scene on a gateway whose index holds ``WORLD``."""

    async def main() -> None:
        async with composed(env, ISSUERS, tmp_path) as stage:
            await stage.ingest(*WORLD)
            await stage.indexed()
            await scene(stage)

    asyncio.run(main())


async def everything(stage: Composed, who: str = "customer") -> list[Reply]:
    """One answer of every kind of question."""
    return [
        await stage.raw(QUERY, who),
        await stage.retrieve("returning goods", who),
        await stage.retrieve("anything", who, thread="thread/returns"),
        await stage.get(f"/v1/threads/{thread_id('thread/returns')}/pack", who),
        await stage.get(f"/v1/units/{SECRET}", who),
        await stage.get("/v1/units/law/returns", who),
    ]


def same(replies: Sequence[Reply]) -> list[object]:
    assert all(CANARY.encode() not in reply.body for reply in replies)
    assert all(str(unit_id(SECRET)).encode() not in reply.body for reply in replies)
    return [reply.same for reply in replies]


def shown(replies: Sequence[Reply]) -> list[object]:
    """The same, less how well a thread fits: a centroid that a withdrawal took away with what
    it was made of comes back with the worker."""
    parts = [reply.same for reply in replies]
    return [(status, _FIT.sub(b"", body), _sized(headers)) for status, body, headers in parts]


def _sized(headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [header for header in headers if header[0] != "content-length"]


async def one_event(stage: Composed, reply: Reply, **wanted: object) -> None:
    """The journal holds one row of this request; its span, escalations and references agree."""
    (event,) = await stage.events(reply)
    critical = event["kind"] == "wrong_audience_result"
    assert event | wanted == event
    assert event["severity"] == ("critical" if critical else "warning")
    assert (event["escalations"], event["contract"]) == ((2, 1) if critical else (0, 0))
    assert (event["unit_ids"], event["unit_count"]) == (ids_of([SECRET]), 1)
    assert event["policy_digest"] == stage.gateway.snapshot.digest
    span = await stage.span(event["request_id"])
    assert span["context"]["trace_id"].removeprefix("0x") == event["trace_id"]
    names = [one["name"] for one in span["events"]]
    assert names.count(event["kind"]) == 1
    told = [name.removeprefix("station.") for name in names if name.startswith("station.")]
    assert told[:6] == ["admit", "match", "identify", "place", "decide", "relay"]
    assert ("inspect" in told[6:]) or reply.status != 200
    assert {name for name in names if name.startswith("retrieval.")} <= RETRIEVAL_PHASES
    assert "retrieval.total" in names or reply.status != 200


@pytest.mark.parametrize("who", ["customer", "partner"])
def test_a_payload_relabelled_by_hand_is_caught_by_the_truth(
    env: dict[str, str], tmp_path: Path, who: str
) -> None:
    """The index says public; hydration refuses the unit and the answer is as if it were not."""

    async def scene(stage: Composed) -> None:
        without = same(await everything(stage, who))
        await stage.ingest(secret(**HIDDEN))
        await stage.indexed()
        assert same(await everything(stage, who)) == without
        assert await stage.events() == []
        await stage.relabel([SECRET], {"class_id": await stage.class_of("law/returns")})
        reply = await stage.raw(QUERY, who)
        await one_event(stage, reply, kind="wrong_audience_result", layer="vector_index",
                        action="withheld", route="retrieve", audience=who)  # fmt: skip
        assert same(await everything(stage, who)) == without

    play(env, tmp_path, scene)


def test_a_late_index_is_a_warning_and_a_lost_update_an_incident(
    env: dict[str, str], tmp_path: Path
) -> None:
    """A withdrawal counts at once. The outbox says whether the index is late or wrong."""

    async def scene(stage: Composed) -> None:
        before = await everything(stage)
        without, less = same(before), shown(before)
        await stage.ingest(secret())
        await stage.indexed()
        assert CANARY.encode() in (await stage.raw(QUERY)).body
        async with stage.worker_held_back():
            await stage.ingest(secret(publication_state="withdrawn"))
            reply = await stage.raw(QUERY)
            await one_event(stage, reply, kind="stale_index", action="withheld")
            assert shown(await everything(stage)) == less
            await stage.sql("update brain.outbox set created_at = now() - interval '1 hour'")
            reply = await stage.raw(QUERY)
            await one_event(stage, reply, kind="wrong_audience_result", action="withheld")
            await stage.sql("update brain.outbox set done_at = now()")
            reply = await stage.raw(QUERY)
            await one_event(stage, reply, kind="wrong_audience_result", action="withheld")
            assert shown(await everything(stage)) == less
            await stage.sql("update brain.outbox set done_at = null")
        await stage.indexed()
        after = await everything(stage)
        assert same(after) == without
        assert await stage.events(*after) == []

    play(env, tmp_path, scene)


def test_lost_row_level_security_is_caught_by_the_predicate_and_stops_the_next_start(
    env: dict[str, str], tmp_path: Path
) -> None:
    """By address, through a thread, and through an index that was changed as well."""

    async def scene(stage: Composed) -> None:
        without = same(await everything(stage))
        await stage.ingest(secret(**HIDDEN))
        await stage.indexed()
        for table in ("unit", "unit_revision", "thread_membership", "embedding"):
            await stage.sql(f"alter table brain.{table} disable row level security")
        lost = {"kind": "wrong_audience_result", "layer": "row_level_security",
                "action": "withheld"}  # fmt: skip
        reply = await stage.get(f"/v1/units/{SECRET}")
        assert reply.status == 404
        await one_event(stage, reply, **lost, route="unit")
        reply = await stage.retrieve("anything", thread="thread/returns")
        await one_event(stage, reply, **lost, route="retrieve")
        await stage.relabel([SECRET], {"class_id": await stage.class_of("law/returns")})
        await one_event(stage, await stage.raw(QUERY), **lost)
        assert same(await everything(stage)) == without

    play(env, tmp_path, scene)
    with pytest.raises(CannotStart) as caught:
        play(env, tmp_path, lambda _: asyncio.sleep(0))
    assert caught.value.code == "not_enforced"


def test_a_dropped_policy_closes_and_is_a_fault_not_an_empty_answer(
    env: dict[str, str], tmp_path: Path
) -> None:
    """Without its policy a table shows nothing. Labels and index say otherwise: refused."""

    async def scene(stage: Composed) -> None:
        await stage.sql("drop policy reader on brain.unit")
        reply = await stage.raw(QUERY)
        assert (reply.status, reply.code) == (503, "retrieval_unavailable")
        (event,) = await stage.events()
        assert (event["action"], event["layer"]) == ("refused", "vector_index")
        status, checks = await stage.ready()
        assert (status, checks["enforcement"]) == (503, "not_enforced")

    play(env, tmp_path, scene)


class Hostile(RetrievalApp):
    """Retrieval without row-level security and with a predicate that permits everything.

    It answers as it should and adds a forbidden unit, read with an employee's eyes.
    """

    stubborn = False

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        ask = Ask.model_validate_json((await receive())["body"])
        honest = await self._retrieval.ask(ask)
        answer = await self._spoilt(honest, ask)
        body = answer.model_dump_json().encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def _spoilt(self, honest: Answer, ask: Ask) -> Answer:
        forbidden = unit_id(SECRET)
        if honest.response is None or (forbidden in ask.exclude and not self.stubborn):
            return honest
        wide = ask.model_copy(
            update={
                "operation": "unit",
                "reference": SECRET,
                "subject": ask.subject.model_copy(update={"profiles": ("employee",)}),
            }
        )
        seen = await self._retrieval.ask(wide)
        assert seen.unit is not None
        first, *others = honest.response.packs
        first = first.model_copy(
            update={"supporting_units": (*first.supporting_units, seen.unit.unit)}
        )
        response = honest.response.model_copy(update={"packs": (first, *others)})
        governed = (*honest.governed, Governed(id=forbidden, sort="unit"))
        return honest.model_copy(update={"response": response, "governed": governed})


@pytest.mark.parametrize("stubborn", [False, True])
def test_hostile_retrieval_is_stopped_at_the_door(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    """Both filters of retrieval are gone: the guard asks again without, then refuses."""
    monkeypatch.setattr(Hostile, "stubborn", stubborn)

    async def scene(stage: Composed) -> None:
        await stage.ingest(secret(visibility="employee"))
        await stage.indexed()
        await stage.sql("alter table brain.unit disable row level security")
        found = {"kind": "wrong_audience_result", "layer": "response"}
        reply = await stage.raw(QUERY)
        if stubborn:
            assert (reply.status, reply.code) == (503, "retrieval_unavailable")
            assert CANARY.encode() not in reply.body
            await one_event(stage, reply, **found, action="refused")
        else:
            await one_event(stage, reply, **found, action="withheld")
            assert same([reply]) == honest

    async def without(stage: Composed) -> None:
        honest.extend(same([await stage.raw(QUERY)]))

    honest: list[object] = []
    play(env, tmp_path, without)
    monkeypatch.setattr(data_path, "RetrievalApp", Hostile)
    play(env, tmp_path, scene)


def test_no_journal_no_answer(env: dict[str, str], tmp_path: Path) -> None:
    """A leak that cannot be recorded is 503; what holds no leak is still answered."""

    async def scene(stage: Composed) -> None:
        await stage.ingest(secret(**HIDDEN))
        await stage.indexed()
        await stage.relabel([SECRET], {"class_id": await stage.class_of("law/returns")})
        await stage.sql("revoke insert on gate.security_event from gw_journal")
        reply = await stage.raw(QUERY)
        assert (reply.status, reply.code) == (503, "journal_unavailable")
        assert b"packs" not in reply.body
        assert CANARY.encode() not in reply.body
        assert await stage.events() == []
        assert (await stage.get("/v1/units/law/returns")).status == 200
        await stage.sql("grant insert on gate.security_event to gw_journal")
        reply = await stage.raw(QUERY)
        assert reply.status == 200
        await one_event(stage, reply, kind="wrong_audience_result")

    play(env, tmp_path, scene)


def test_a_dead_collector_and_a_full_queue_lose_no_event(
    env: dict[str, str], tmp_path: Path
) -> None:
    """The journal is the record; telemetry only tells of it."""
    config = Path(env["GATEWAY_CONFIG"])
    config.write_text(config.read_text() + "queue_max = 1\nsample_ratio = 1.0\n")

    async def scene(stage: Composed) -> None:
        await stage.ingest(secret(**HIDDEN))
        await stage.indexed()
        await stage.relabel([SECRET], {"class_id": await stage.class_of("law/returns")})
        replies = await asyncio.gather(*(stage.raw(QUERY) for _ in range(20)))
        assert {reply.status for reply in replies} == {200}
        same(replies)
        events = await stage.events()
        assert sorted(event["request_id"] for event in events) == sorted(
            reply.request_id for reply in replies
        )

    play(env | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, tmp_path, scene)


APPROVE = (
    "select gate.approve_label_change(id, 'ann', 'risk', 'published', r.digest, %s)"
    " from gate.label_change, gate.active_revision r where state = 'pending'"
)


class Pausing(HashingEmbedder):
    """An embedder that stops once, between a reader's snapshot and its search."""

    def __init__(self) -> None:
        super().__init__(64)
        self.opened, self.go = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        if list(texts) == [QUERY] and not self.opened.is_set():
            self.opened.set()
            assert self.go.wait(30)
        return super().embed(texts)


@pytest.mark.parametrize("before", [None, HIDDEN], ids=["new", "widened"])
def test_an_index_ahead_of_an_open_reader_is_no_event(
    env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, str] | None,
) -> None:
    """The reader is open, then the unit becomes visible, then the index offers it."""
    model = Pausing()
    monkeypatch.setattr(data_path, "open_embedder", lambda _: model)

    async def scene(stage: Composed) -> None:
        if before is not None:
            await stage.ingest(secret(**before))
            await stage.indexed()
        asking = asyncio.create_task(stage.raw(QUERY))
        await asyncio.to_thread(model.opened.wait, 30)
        await stage.ingest(secret(**PUBLIC))
        if before is not None:
            await stage.sql(APPROVE, sorted(stage.gateway.snapshot.vocabulary.profiles))
        await stage.indexed()
        model.go.set()
        reply = await asking
        assert reply.status == 200
        assert CANARY.encode() in reply.body
        assert {event["kind"] for event in await stage.events()} <= {"label_widened"}

    play(env, tmp_path, scene)
