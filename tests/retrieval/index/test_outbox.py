"""The outbox worker: at least once, never backwards, and back to the truth after any crash.

Chosen by us from the failures of other products (design, retrieval-failures 17 and 18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.embed.ports import Vector
from retrieval.embed.quantise import pack
from retrieval.errors import IndexUnavailable, StoreUnavailable
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.points import IndexLabel, IndexPoint
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, dsn_for
from tests.retrieval.index.collections import everything, point, raw_client, scope, using
from tests.retrieval.truth import Record, Unit
from tests.services import Database, VectorService

DIMS = 16
EMBEDDER = HashingEmbedder(DIMS)


@pytest.fixture
def record(database: Database, snapshot: Snapshot) -> Iterator[Record]:
    with Record(database.url, snapshot.vocabulary) as opened:
        yield opened


@pytest.fixture
def conninfo(database: Database) -> str:
    return dsn_for(INDEX, database.url, database.secret)


def units(count: int, class_id: int = 3, first: int = 1) -> list[Unit]:
    return [
        Unit(UUID(int=n), class_id, f"unit {n}", f"the body of number {n}")
        for n in range(first, first + count)
    ]


def label(unit: Unit, *, revision: int = 1) -> IndexLabel:
    return IndexLabel(unit.id, revision, unit.class_id, unit.tenant, unit.jurisdiction)


async def stored(index: QdrantIndex) -> dict[UUID, IndexLabel | None]:
    return {held.unit_id: held.label for held in await everything(index)}


def worked(
    sidecar: VectorService,
    conninfo: str,
    work: Callable[[OutboxWorker, QdrantIndex], Awaitable[None]],
) -> None:
    async def run(index: QdrantIndex) -> None:
        await work(OutboxWorker(conninfo, index, EMBEDDER), index)

    using(sidecar, run, dims=DIMS)


def test_index_holds_the_truth_after_draining(
    sidecar: VectorService, record: Record, conninfo: str
) -> None:
    """Classes (unclassed too), compartments, vectors made on the way, lexical form."""
    all_units = [*units(20), Unit(UUID(int=99), -1, "blank", "unlabelled", "t", "j")]
    record.put(all_units)

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        assert await worker.drain() > 0
        assert await stored(index) == {unit.id: label(unit) for unit in all_units}
        (query,) = EMBEDDER.embed(["unit 7\nthe body of number 7"])
        nearest = max(
            await index.dense(pack(query), scope(3), limit=1), key=lambda found: found.score
        )
        assert nearest.unit_id.int == 7
        assert (await worker.lag()).pending == record.pending() == 0

    worked(sidecar, conninfo, work)
    assert record.execute("select count(*) from brain.embedding where model = %s", EMBEDDER.name)[
        0
    ] == (21,)


def test_changes_of_every_kind_arrive(
    sidecar: VectorService, record: Record, conninfo: str
) -> None:
    """Label, content and deletion, several of one unit in one batch."""
    relabelled, revised, buried, both = units(4)
    record.put([relabelled, revised, buried, both])

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        await worker.drain()
        narrowed = replace(relabelled, class_id=4, tenant="t")
        twice = replace(both, class_id=5, body="new words")
        record.relabel([narrowed, twice])
        record.revise([replace(revised, body="new words"), twice], revision=2)
        record.bury([buried])
        await worker.drain()
        assert await stored(index) == {
            narrowed.id: label(narrowed),
            revised.id: label(revised, revision=2),
            both.id: label(twice, revision=2),
        }

    worked(sidecar, conninfo, work)


def test_crash_before_the_index_was_told_leaves_the_row_pending(
    sidecar: VectorService, record: Record, conninfo: str
) -> None:
    """Killed between the commit of a deletion and the deletion in the index."""
    (unit,) = units(1)
    record.put([unit])

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        await worker.drain()
        record.bury([unit])
        unreachable = QdrantIndex("http://127.0.0.1:1", "key", index.collection, DIMS)
        with pytest.raises(IndexUnavailable):
            await OutboxWorker(conninfo, unreachable, EMBEDDER).drain()
        await unreachable.close()
        assert record.pending() == 1
        assert unit.id in await stored(index)
        await OutboxWorker(conninfo, index, EMBEDDER).drain()
        assert await stored(index) == {}

    worked(sidecar, conninfo, work)


class Severed(QdrantIndex):
    """Loses the worker's database session right after the index acknowledged."""

    admin_url = ""

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        await super().upsert(points)
        self._sever()

    async def delete(self, unit_ids: Collection[UUID]) -> None:
        await super().delete(unit_ids)
        self._sever()

    def _sever(self) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where usename = 'gw_index' and datname = current_database()"
            )


def test_crash_after_the_index_was_told_is_repeated_harmlessly(
    sidecar: VectorService, record: Record, conninfo: str, database: Database
) -> None:
    """Acknowledged by the index, never marked done: the row is worked on again."""
    kept, buried = units(2)
    record.put([kept, buried])
    record.bury([buried])

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        severed = Severed(sidecar.url, sidecar.api_key, index.collection, DIMS)
        severed.admin_url = database.url
        with pytest.raises(StoreUnavailable):
            await OutboxWorker(conninfo, severed, EMBEDDER).step()
        await severed.close()
        assert record.pending() > 0
        await worker.drain()
        assert await stored(index) == {kept.id: label(kept)}

    worked(sidecar, conninfo, work)


def test_replayed_row_brings_no_deleted_unit_back(
    sidecar: VectorService, record: Record, conninfo: str
) -> None:
    """Tombstones: rows name units, and only the truth is written."""
    gone, revised = units(2)
    record.put([gone, revised])

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        await worker.drain()
        record.bury([gone])
        record.revise([revised], revision=2)
        await worker.drain()
        record.execute("update brain.outbox set done_at = null")
        await worker.drain()
        assert await stored(index) == {revised.id: label(revised, revision=2)}

    worked(sidecar, conninfo, work)


def test_workers_at_the_same_time_end_at_the_truth(
    sidecar: VectorService, record: Record, conninfo: str
) -> None:
    """Three of them, while units change."""
    first = units(40)
    record.put(first)

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        others = [OutboxWorker(conninfo, index, EMBEDDER) for _ in range(2)]
        runs = [asyncio.create_task(one.drain()) for one in (worker, *others)]
        changed = [replace(unit, class_id=8) for unit in first[::2]]
        await asyncio.to_thread(record.relabel, changed)
        await asyncio.gather(*runs)
        await worker.drain()
        truth = {unit.id: label(unit) for unit in [*first, *changed]}
        assert await stored(index) == truth

    worked(sidecar, conninfo, work)


def test_sweep_mends_whatever_the_index_got_wrong(
    sidecar: VectorService, record: Record, conninfo: str
) -> None:
    """Orphan, point of a lost deletion, label changed by hand, lost point, a later revision
    than the truth (restored from a backup): all found without a row in the outbox."""
    sound, tampered, lost, ahead = units(4)
    record.put([sound, tampered, lost, ahead])

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        await worker.drain()
        orphan = point(500, 3, vector=[1.0] + [0.0] * (DIMS - 1))
        later = replace(orphan, label=label(ahead, revision=9))
        await index.upsert([orphan, later])
        await index.delete([lost.id])
        async with raw_client(sidecar) as client:
            await client.set_payload(index.collection, {"class_id": [3]}, [str(tampered.id)])
        swept = await worker.sweep()
        assert (swept.orphans, swept.mended) == (1, 3)
        await worker.drain()
        assert await stored(index) == {
            unit.id: label(unit) for unit in (sound, tampered, lost, ahead)
        }
        again = await worker.sweep()
        assert (again.orphans, again.mended) == (0, 0)

    worked(sidecar, conninfo, work)


class Choking(HashingEmbedder):
    """Fails on one text, as a model may."""

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        if any("number 2" in text for text in texts):
            raise ValueError("cannot be read")
        return super().embed(texts)


def test_one_bad_unit_does_not_hold_up_the_others(
    sidecar: VectorService, record: Record, conninfo: str
) -> None:
    """It is set aside, stays pending and shows in the lag."""
    some = units(3)
    record.put(some)

    async def work(worker: OutboxWorker, index: QdrantIndex) -> None:
        choking = OutboxWorker(conninfo, index, Choking(DIMS))
        await choking.step()
        assert set(await stored(index)) == {some[0].id, some[2].id}
        lag = await choking.lag()
        assert lag.set_aside == 1
        assert lag.pending > 0
        assert "embedder" in lag.last_failure
        await worker.drain()
        assert set(await stored(index)) == {unit.id for unit in some}

    worked(sidecar, conninfo, work)
