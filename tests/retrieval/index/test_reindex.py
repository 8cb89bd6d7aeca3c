"""A collection that somebody else made: never taken over, never trusted; ours is filled from truth.

Provenance: issue 5, "What to build" 9: an existing Qdrant collection is re-indexed or guarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import pytest
from qdrant_client import models

from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.errors import IndexUnavailable
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.reindex import Standing, rebuild, standing
from retrieval.stores.roles import INDEX, dsn_for
from tests.retrieval.index.collections import collection, everything, raw_client
from tests.retrieval.truth import Record, Unit
from tests.services import Database, VectorService

DIMS = 16
EMBEDDER = HashingEmbedder(DIMS)
STRANGE: dict[str, dict[str, object]] = {
    "another's payload": {"text": "somebody's", "acl": ["everyone"]},
    "no payload": {},
    "our words under another id": {
        "class_id": 0, "tenant": "*", "jurisdiction": "*", "revision": 1,
        "unit_id": "00000000-0000-4000-8000-000000000000"},
    "a list of classes": {"class_id": [0, 1], "tenant": "*", "jurisdiction": "*", "revision": 1},
}  # fmt: skip


def units(count: int) -> list[Unit]:
    return [Unit(UUID(int=n), 3, f"unit {n}", "words") for n in range(1, count + 1)]


async def put(sidecar: VectorService, name: str, payload: dict[str, object]) -> str:
    """A point of somebody else's in a collection."""
    ident = str(uuid4())
    async with raw_client(sidecar) as client:
        await client.upsert(
            name,
            [models.PointStruct(id=ident, vector={"dense": [0.25] * DIMS}, payload=payload)],
            wait=True,
        )
    return ident


def working(
    sidecar: VectorService,
    database: Database,
    snapshot: Snapshot,
    work: Callable[[QdrantIndex, str, Record], Awaitable[None]],
) -> None:
    conninfo = dsn_for(INDEX, database.url, database.secret)

    async def main(record: Record) -> None:
        async with collection(sidecar, dims=DIMS) as index:
            await work(index, conninfo, record)

    with Record(database.url, snapshot.vocabulary) as record:
        asyncio.run(main(record))


def test_a_collection_is_filled_from_the_truth_alone(
    sidecar: VectorService, database: Database, snapshot: Snapshot
) -> None:
    """Also after the outbox was worked off into another one: nothing has to be pending."""

    async def work(index: QdrantIndex, conninfo: str, record: Record) -> None:
        record.put(units(5))
        assert await rebuild(conninfo, index, EMBEDDER) == Standing(5, 0, 0, 0)
        assert record.pending() == 0
        async with collection(sidecar, dims=DIMS) as another:
            assert await standing(conninfo, another) == Standing(0, 0, 5, 0)
            assert await rebuild(conninfo, another, EMBEDDER) == Standing(5, 0, 0, 0)
            assert {held.unit_id for held in await everything(another)} == {
                one.id for one in units(5)
            }

    working(sidecar, database, snapshot, work)


@pytest.mark.parametrize("name", STRANGE)
def test_a_collection_with_a_point_of_somebody_else_is_refused_and_left_alone(
    name: str, sidecar: VectorService, database: Database, snapshot: Snapshot
) -> None:
    async def work(index: QdrantIndex, conninfo: str, record: Record) -> None:
        record.put(units(2))
        ident = await put(sidecar, index.collection, STRANGE[name])
        assert await standing(conninfo, index) == Standing(0, 0, 2, 1)
        with pytest.raises(IndexUnavailable, match="no gateway wrote"):
            await rebuild(conninfo, index, EMBEDDER)
        async with raw_client(sidecar) as client:
            page, _ = await client.scroll(index.collection, limit=10, with_payload=True)
        assert [(str(one.id), one.payload or {}) for one in page] == [(ident, STRANGE[name])]
        assert record.pending() > 0

    working(sidecar, database, snapshot, work)


def test_a_collection_of_another_shape_is_refused(
    sidecar: VectorService, database: Database, snapshot: Snapshot
) -> None:
    async def work(index: QdrantIndex, conninfo: str, _: Record) -> None:
        other = QdrantIndex(sidecar.url, sidecar.api_key, index.collection, DIMS * 2)
        absent = QdrantIndex(sidecar.url, sidecar.api_key, f"c_{uuid4().hex[:12]}", DIMS)
        try:
            for one in (other, absent):
                with pytest.raises(IndexUnavailable):
                    await standing(conninfo, one)
            with pytest.raises(IndexUnavailable, match="was made for 16 dimensions"):
                await rebuild(conninfo, other, HashingEmbedder(DIMS * 2))
        finally:
            await other.close()
            await absent.close()

    working(sidecar, database, snapshot, work)


def test_what_is_stale_or_gone_is_told_and_mended(
    sidecar: VectorService, database: Database, snapshot: Snapshot
) -> None:
    async def work(index: QdrantIndex, conninfo: str, record: Record) -> None:
        record.put(units(3))
        await rebuild(conninfo, index, EMBEDDER)
        await index.delete([UUID(int=1)])
        record.relabel([Unit(UUID(int=2), 4, "unit 2", "words")])
        found = await standing(conninfo, index)
        assert (found.equal, found.stale, found.missing) == (1, 1, 1)
        assert not found.sound
        assert (await rebuild(conninfo, index, EMBEDDER)).sound

    working(sidecar, database, snapshot, work)
