"""G2 at the door: hidden objects change no byte and no header of any answer over HTTP.

Mandated by promise G2. `tests/properties` draws many worlds for the service; here one nasty
world goes through the listener, placement, guard and writer, on every endpoint of `/v1`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retrieval.embedded import Embedded
from retrieval.ingest.identity import thread_id, unit_id
from tests.gateway.cli.made import environment
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import (
    AUDIENCES,
    PUBLIC,
    Composed,
    Record,
    Reply,
    composed,
    thread,
    unit,
)

TWIN = "Returning goods is free of charge."
SEEN: tuple[Record, ...] = (
    thread("thread/returns", "Returning goods"),
    thread("thread/shipping", "Shipping of parcels"),
    unit("law/returns", "Goods may be returned within thirty days.", thread="thread/returns"),
    unit("faq/returns", TWIN, thread="thread/returns"),
    unit("faq/returns-2", TWIN, thread="thread/returns"),
    unit("faq/shipping", "Shipping takes two days.", thread="thread/shipping"),
    {
        "sort": "artifact",
        "thread": "thread/returns",
        "title": "Report on returns",
        "lifecycle_stage": "report",
        "tenant": "*",
        "jurisdiction": "*",
        **PUBLIC,
        "kind": "report",
    },
)
NOWHERE = (
    {"visibility": "restricted"},
    {"tenant": "stranger"},
    {"publication_state": "withdrawn"},
    {"readiness": "superseded"},
)
"""Labels under which none of the four callers sees anything."""
HIDDEN_UNITS = tuple(f"hidden/{number}" for number in range(24))
HIDDEN_THREADS = tuple(f"thread/hidden-{number}" for number in range(4))
QUERIES = ("returning goods", "how long does shipping of parcels take", "free of charge", "zebra")


def hidden() -> list[Record]:
    """Copies of what is seen, better answers than it, in its threads and linked to it."""
    records: list[Record] = [
        {**thread(address, "Returning goods, shipping of parcels and zebra"), **label}
        for address, label in zip(HIDDEN_THREADS, NOWHERE, strict=True)
    ]
    for number, address in enumerate(HIDDEN_UNITS):
        label = NOWHERE[number % len(NOWHERE)]
        body = (
            QUERIES[number % len(QUERIES)] if number % 2 else "Returning goods is free of charge."
        )
        inside = (*HIDDEN_THREADS, "thread/returns", "thread/shipping")[number % 6]
        stage = {"lifecycle_stage": "report", "kind": "report"} if number % 3 else {}
        records.append(unit(address, body, thread=inside, **{**stage, **label}))
        records.append({"sort": "edge", "from": address, "to": "law/returns", "relation": "about"})
    records.append(
        {"sort": "membership", "thread": HIDDEN_THREADS[0], "unit": "faq/shipping",
         "role": "canonical"}
    )  # fmt: skip
    return records


async def everything(stage: Composed, who: str) -> list[Reply]:
    """Every endpoint, with seen, hidden and absent references."""
    targets = [
        f"/v1/threads/{thread_id('thread/returns')}/pack",
        f"/v1/threads/{thread_id(HIDDEN_THREADS[0])}/pack",
        f"/v1/threads/{thread_id('thread/absent')}/pack",
        "/v1/units/law/returns",
        f"/v1/units/{HIDDEN_UNITS[0]}",
        "/v1/units/absent",
        "/v1/scope",
        "/v1/units?limit=2",
        "/v1/units?limit=200&text=true",
        "/v1/units?kind=report",
        f"/v1/packs/{unit_id(HIDDEN_UNITS[0])}",
    ]
    pack = (await stage.retrieve(QUERIES[0], who)).json["packs"][0]
    cited = [
        {"pack_id": pack["pack_id"], "canonical_address": address, "source_revision": 1}
        for address in ("law/returns", "faq/shipping", HIDDEN_UNITS[0], "absent")
    ]
    claims = [{"citations": [one]} for one in cited]
    said = {"pack_id": pack["pack_id"], "kind": "noisy_context"}
    return [
        await stage.get(f"/v1/packs/{pack['pack_id']}", who),
        await stage.post("/v1/answers/check", {"claims": claims}, who),
        await stage.post("/v1/feedback", said, who),
        *[
            await stage.post("/v1/feedback", {**said, "unit_ids": [str(unit_id(one))]}, who)
            for one in ("law/returns", HIDDEN_UNITS[0], "absent")
        ],
        *[await stage.retrieve(query, who) for query in QUERIES],
        *[await stage.raw(query, who, k=3) for query in QUERIES],
        await stage.retrieve(QUERIES[0], who, thread=HIDDEN_THREADS[1]),
        await stage.retrieve(f"{HIDDEN_THREADS[2]} {unit_id(HIDDEN_UNITS[0])}", who),
        await stage.retrieve(QUERIES[0], who, audience="customer"),
        *[await stage.get(target, who) for target in targets],
    ]


async def answers(stage: Composed) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for who in AUDIENCES:
        replies = await everything(stage, who)
        assert not any(b"hidden" in one.body for one in replies)
        found[who] = [one.same for one in replies]
    return found


@pytest.mark.timeout(300)
def test_hidden_objects_change_nothing_over_http(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Added, altered, relabelled within the dark, tombstoned: four callers see no difference."""

    async def main() -> None:
        env = environment(services, database, tmp_path)
        async with composed(env, Issuers(), tmp_path) as stage:
            await stage.ingest(*SEEN)
            await stage.indexed()
            before = await answers(stage)
            assert len({str(one) for one in before["customer"]}) > 8, "the questions differ"

            report = await stage.ingest(*hidden())
            assert not report.reasons
            await stage.indexed()
            assert await answers(stage) == before, "added"

            await stage.sql(
                "update brain.unit set title = 'returning goods', active_at = now(),"
                " visibility = 'restricted', lifecycle_stage = 'law' where id = any(%s)",
                [unit_id(one) for one in HIDDEN_UNITS],
            )
            await stage.indexed()
            assert await answers(stage) == before, "altered"

            await stage.sql(
                "update brain.unit set deleted_at = now() where id = any(%s)",
                [unit_id(one) for one in HIDDEN_UNITS],
            )
            assert await answers(stage) == before, "tombstoned, the index still behind"
            await stage.indexed()
            assert await answers(stage) == before, "tombstoned"
            assert not await stage.events()

    asyncio.run(main())
