"""Index and truth side by side: whatever the size of a page, each id is seen once, on both sides.

Chosen by us: with a million units neither side fits into the memory of a process that serves.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from qdrant_client import models

from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.errors import IndexUnavailable
from retrieval.stores import outbox
from retrieval.stores.compare import stretches
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.points import Held, IndexLabel, IndexPoint
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, dsn_for
from tests.retrieval.index.collections import everything, using
from tests.retrieval.truth import Record, Unit
from tests.services import Database, VectorService

DIMS = 16


def unit(ident: UUID) -> Unit:
    return Unit(ident, 3, "some unit", "its body")


def label(ident: UUID, *, revision: int = 1) -> IndexLabel:
    return IndexLabel(ident, revision, 3, "*", "*")


@pytest.mark.parametrize("page", [1, 2, 3, 7, 1000])
def test_every_id_of_both_sides_is_compared_once(
    page: int, sidecar: VectorService, database: Database, snapshot: Snapshot
) -> None:
    rng = np.random.default_rng(page)
    ids = [*(UUID(int=n) for n in range(30)), UUID(int=(1 << 128) - 1)]
    truth = [one for one in ids if rng.random() < 0.7]
    points = {one: int(rng.integers(1, 3)) for one in ids if rng.random() < 0.7}

    async def run(index: QdrantIndex) -> None:
        await index.upsert(
            [IndexPoint(label(one, revision=of), None, [], []) for one, of in points.items()]
        )
        conninfo = dsn_for(INDEX, database.url, database.secret)
        async with await psycopg.AsyncConnection.connect(conninfo) as connection:
            found = [one async for one in stretches(connection, index, page=page)]
        assert [one for part in found for one in part.held] == sorted(points)
        assert [one for part in found for one in part.truth] == sorted(truth)
        assert {one for part in found for one in part.orphans()} == points.keys() - set(truth)
        later = {one for one in truth if points.get(one) == 2}
        assert {one for part in found for one in part.ahead()} == later
        differing = {one for one in truth if points.get(one) != 1}
        assert {one for part in found for one in part.differing()} == differing

    with Record(database.url, snapshot.vocabulary) as record:
        record.put([unit(one) for one in truth])
        using(sidecar, run, dims=DIMS)


def test_what_changes_during_a_sweep_does_not_wait_for_its_end(
    sidecar: VectorService,
    database: Database,
    snapshot: Snapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A unit that comes behind the place where the sweep stands is carried before it ends."""
    monkeypatch.setattr(outbox, "stretches", partial(stretches, page=2))
    early, late = UUID(int=1), [UUID(int=n) for n in range(10, 20)]
    conninfo = dsn_for(INDEX, database.url, database.secret)

    with Record(database.url, snapshot.vocabulary) as record:

        class Interrupted(QdrantIndex):
            async def held_from(self, first: UUID, limit: int = 0) -> list[Held]:
                if first.int == late[3].int + 1:
                    await asyncio.to_thread(record.put, [unit(early)])
                return await super().held_from(first, limit)

        async def run(index: QdrantIndex) -> None:
            record.put([unit(one) for one in late])
            worker = OutboxWorker(conninfo, index, HashingEmbedder(DIMS))
            await worker.drain()
            watched = Interrupted(sidecar.url, sidecar.api_key, index.collection, DIMS)
            try:
                swept = await OutboxWorker(conninfo, watched, HashingEmbedder(DIMS)).sweep()
            finally:
                await watched.close()
            assert (swept.orphans, swept.mended) == (0, 0)
            assert [held.unit_id for held in await everything(index)] == [early, *late]
            assert record.pending() == 0

        using(sidecar, run, dims=DIMS)


def test_points_in_another_order_are_refused_before_anything_is_removed(
    sidecar: VectorService, database: Database, snapshot: Snapshot
) -> None:
    """Else what was not read yet would look as if it were gone."""
    conninfo = dsn_for(INDEX, database.url, database.secret)

    class Shuffled(QdrantIndex):
        async def _page(
            self, chosen: models.Filter | None, limit: int, offset: Any
        ) -> tuple[list[Held], Any]:
            found, following = await super()._page(chosen, limit, offset)
            return found[::-1], following

    with Record(database.url, snapshot.vocabulary) as record:

        async def run(index: QdrantIndex) -> None:
            ids = [UUID(int=n) for n in range(1, 4)]
            record.put([unit(one) for one in ids])
            await OutboxWorker(conninfo, index, HashingEmbedder(DIMS)).drain()
            shuffled = Shuffled(sidecar.url, sidecar.api_key, index.collection, DIMS)
            try:
                with pytest.raises(IndexUnavailable, match="order of their ids"):
                    await OutboxWorker(conninfo, shuffled, HashingEmbedder(DIMS)).sweep()
            finally:
                await shuffled.close()
            assert [held.unit_id for held in await everything(index)] == ids

        using(sidecar, run, dims=DIMS)
