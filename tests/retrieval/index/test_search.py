"""What the index promises its callers: complete down to the cut, fenced, filtered, mapped."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import numpy as np
import pytest
from qdrant_client import models

from retrieval.embed.quantise import dots, pack
from retrieval.errors import IndexUnavailable
from retrieval.stores.points import IndexLabel, IndexPoint
from retrieval.stores.qdrant import QdrantIndex
from tests.retrieval.index.collections import (
    collection,
    everything,
    point,
    raw_client,
    scope,
    using,
)
from tests.services import VectorService

EAST = pack(np.array([1, 0, 0, 0], np.float32))


def random_points(count: int, seed: int, *, class_id: int = 1) -> list[IndexPoint]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [point(number, class_id, vector=row) for number, row in enumerate(rows, 1)]


def test_dense_candidates_contain_the_exact_best(sidecar: VectorService) -> None:
    """Against our own exact scores, over 20 queries."""
    points = random_points(400, seed=3)
    queries = [row.vector for row in random_points(20, seed=4) if row.vector]

    async def run(index: QdrantIndex) -> None:
        await index.upsert(points)
        for query in queries:
            found = await index.dense(query, scope(1), limit=10)
            scores = dots(query, [p.vector for p in points if p.vector])
            best = sorted(((-s, p.label.unit_id) for s, p in zip(scores, points, strict=True)))[:10]
            assert {unit for _, unit in best} <= {candidate.unit_id for candidate in found}
            exact = {p.label.unit_id: s for s, p in zip(scores, points, strict=True)}
            assert max(abs(c.score - exact[c.unit_id]) for c in found) < 1e-5

    using(sidecar, run)


@pytest.mark.parametrize("copies", [3, 40, 300])
def test_ties_at_the_cut_are_all_returned(sidecar: VectorService, copies: int) -> None:
    """A cut through equal scores would let the engine choose, and hidden points steer it."""
    equal = [point(number, terms=[5], weights=[1.0]) for number in range(1, copies + 1)]
    lower = [
        point(1000 + number, vector=(0.6, 0.8, 0, 0), terms=[5], weights=[0.5])
        for number in range(100)
    ]

    async def run(index: QdrantIndex) -> None:
        await index.upsert([*lower, *equal])
        dense = await index.dense(EAST, scope(1), limit=2)
        sparse = await index.sparse([5], [2.0], scope(1), limit=2)
        expected = {one.label.unit_id for one in equal}
        assert {candidate.unit_id for candidate in dense} == expected
        assert {candidate.unit_id for candidate in sparse} == expected

    using(sidecar, run)


def test_fewer_than_the_limit_means_no_more(sidecar: VectorService) -> None:
    """Callers refill until then."""

    async def run(index: QdrantIndex) -> None:
        await index.upsert(random_points(7, seed=5))
        assert len(await index.dense(EAST, scope(1), limit=10)) == 7

    using(sidecar, run)


def test_hidden_and_excluded_points_are_not_proposed(sidecar: VectorService) -> None:
    """The filter does the first, the adapter the second; neither shortens the answer."""

    async def run(index: QdrantIndex) -> None:
        await index.upsert([point(number, 1) for number in range(1, 6)])
        await index.upsert([point(number, 2) for number in range(6, 11)])
        found = await index.dense(EAST, scope(1), limit=4, exclude=[UUID(int=2)])
        assert {candidate.unit_id.int for candidate in found} == {1, 3, 4, 5}

    using(sidecar, run)


def test_scope_without_classes_asks_nothing() -> None:
    """Nothing permitted: no call at all, so an unreachable engine does not matter."""

    async def run() -> None:
        index = QdrantIndex("http://127.0.0.1:1", "key", "absent", 4)
        assert await index.dense(EAST, scope(), limit=5) == []
        assert await index.sparse([1], [1.0], scope(), limit=5) == []
        assert await index.count(scope()) == 0
        await index.close()

    asyncio.run(run())


def test_unreachable_engine_is_index_unavailable() -> None:
    """Never an empty list."""

    async def run() -> None:
        index = QdrantIndex("http://127.0.0.1:1", "key", "absent", 4)
        with pytest.raises(IndexUnavailable, match="`qdrant` is unavailable"):
            await index.dense(EAST, scope(1), limit=5)
        await index.close()

    asyncio.run(run())


def test_wrong_key_and_absent_collection_are_index_unavailable(sidecar: VectorService) -> None:
    """The engine's own words do not travel."""

    async def run() -> None:
        for key, status in (("wrong", "401"), (sidecar.api_key, "404")):
            index = QdrantIndex(sidecar.url, key, "absent", 4)
            with pytest.raises(IndexUnavailable, match=f"answered {status}"):
                await index.ping()
            await index.close()

    asyncio.run(run())


def test_older_revision_never_replaces_a_newer_one(sidecar: VectorService) -> None:
    """The fence holds per point, also inside one batch."""

    async def run(index: QdrantIndex) -> None:
        await index.upsert([point(1, 5, revision=3), point(2, 5, revision=1)])
        await index.upsert([point(1, 9, revision=2), point(2, 9, revision=2)])
        held = await index.held([UUID(int=1), UUID(int=2)])
        assert {unit.int: (label.revision, label.class_id) for unit, label in labelled(held)} == {
            1: (3, 5),
            2: (2, 9),
        }

    using(sidecar, run)


def labelled(held: dict[UUID, IndexLabel | None]) -> list[tuple[UUID, IndexLabel]]:
    return [(unit, label) for unit, label in held.items() if label is not None]


def test_relabelling_keeps_vectors_and_creates_nothing(sidecar: VectorService) -> None:
    """A label change moves no vector; a unit that is not there stays away."""

    async def run(index: QdrantIndex) -> None:
        await index.upsert([point(1, 5, revision=2, terms=[7], weights=[1.0])])
        await index.relabel(
            [
                IndexLabel(UUID(int=1), 2, 6, "t", "j"),
                IndexLabel(UUID(int=2), 1, 6, "t", "j"),
            ]
        )
        asked = scope(6, tenants=["t"], jurisdictions=["j"])
        assert [c.unit_id.int for c in await index.dense(EAST, asked, limit=5)] == [1]
        assert [c.unit_id.int for c in await index.sparse([7], [1.0], asked, limit=5)] == [1]
        await index.relabel([IndexLabel(UUID(int=1), 1, 5, "t", "j")])
        assert await index.count(asked) == 1
        await index.delete([UUID(int=1), UUID(int=77)])
        assert await everything(index) == []

    using(sidecar, run)


def test_collection_with_points_but_without_payload_index_is_refused(
    sidecar: VectorService,
) -> None:
    """Filtered search over it would lose recall silently; the message names the remedy."""

    async def run() -> None:
        async with collection(sidecar) as index, raw_client(sidecar) as client:
            bare = QdrantIndex(sidecar.url, sidecar.api_key, f"{index.collection}_bare", 4)
            await client.create_collection(
                bare.collection,
                vectors_config={"dense": models.VectorParams(size=4, distance=models.Distance.DOT)},
                sparse_vectors_config={"lexical": models.SparseVectorParams()},
            )
            try:
                await bare.upsert([point(1)])
                with pytest.raises(IndexUnavailable, match="no payload index on `class_id`"):
                    await bare.ensure()
                await bare.delete([UUID(int=1)])
                await bare.ensure()
            finally:
                await bare.close()
                await client.delete_collection(bare.collection)

    asyncio.run(run())


def test_collection_of_another_shape_is_refused(sidecar: VectorService) -> None:
    """Another embedder needs another collection."""

    async def run() -> None:
        async with collection(sidecar) as index:
            other = QdrantIndex(sidecar.url, sidecar.api_key, index.collection, 8)
            with pytest.raises(IndexUnavailable, match="made for 4 dimensions"):
                await other.ensure()
            await other.close()

    asyncio.run(run())


def test_replicas_that_start_together_make_one_collection(sidecar: VectorService) -> None:
    """The later ones find it made; several workers of one gateway start like this."""
    name = f"c_{uuid4().hex[:12]}"

    async def run() -> None:
        indexes = [QdrantIndex(sidecar.url, sidecar.api_key, name, 4) for _ in range(6)]
        try:
            await asyncio.gather(*(index.ensure() for index in indexes))
            await indexes[0].upsert(random_points(3, seed=6))
            assert len(await indexes[-1].dense(EAST, scope(1), limit=10)) == 3
        finally:
            async with raw_client(sidecar) as client:
                await client.delete_collection(name)
            for index in indexes:
                await index.close()

    asyncio.run(run())
