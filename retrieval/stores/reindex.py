"""A collection filled anew from the record of truth, and what stands in one that exists.

Laws
    * An existing collection is never taken over: one of another shape, or one that holds a point
      which is not ours, is refused before anything is written or removed. Name another one.
    * What a collection says is believed nowhere: its points are candidates, and whether a unit
      may be read is decided on the truth (``hydrate``, guard). This is about recall only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from psycopg import AsyncConnection, Error

from retrieval.embed.ports import Embedder
from retrieval.errors import IndexUnavailable, Store, StoreUnavailable
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.points import IndexLabel
from retrieval.stores.qdrant import QdrantIndex

_LABELS: Final = """
    select u.id, u.current_revision, u.class_id, u.tenant, u.jurisdiction
    from brain.unit u
    join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision
    where u.deleted_at is null"""


@dataclass(frozen=True, slots=True)
class Standing:
    """Points beside the truth: equal to it, ``stale`` (another label or revision, or no live
    unit), ``missing`` units, and ``strangers`` that no gateway wrote."""

    equal: int
    stale: int
    missing: int
    strangers: int

    @property
    def sound(self) -> bool:
        return not (self.stale or self.missing or self.strangers)


async def standing(conninfo: str, index: QdrantIndex) -> Standing:
    """How a collection stands; nothing is written. ``conninfo`` logs in as gw_index.

    Raises IndexUnavailable (also for a collection of another shape), StoreUnavailable.
    Cost: a scroll over the collection and one look at every unit.
    """
    await index.check()
    strangers = await index.strangers()
    held = {} if strangers else {one.unit_id: one.label for one in await index.everything()}
    try:
        async with await AsyncConnection.connect(conninfo) as connection:
            cursor = await connection.execute(_LABELS)
            labels = {row[0]: IndexLabel(*row) async for row in cursor}
    except Error as fault:
        raise StoreUnavailable(Store.POSTGRES, type(fault).__name__) from fault
    equal = sum(1 for unit_id, label in labels.items() if held.get(unit_id) == label)
    return Standing(
        equal=equal,
        stale=len(held) - equal,
        missing=len(labels.keys() - held.keys()),
        strangers=strangers,
    )


async def rebuild(conninfo: str, index: QdrantIndex, embedder: Embedder) -> Standing:
    """The collection made if it is not there, and brought to the truth; how it stands then.

    Raises IndexUnavailable for one that is not ours; then it is as it was.
    """
    await index.ensure()
    strangers = await index.strangers()
    if strangers:
        raise IndexUnavailable(
            Store.QDRANT,
            f"collection `{index.collection}` holds {strangers} points that no gateway wrote;"
            " name another collection: it is filled from the record of truth",
        )
    worker = OutboxWorker(conninfo, index, embedder)
    await worker.sweep()
    await worker.drain()
    return await standing(conninfo, index)
