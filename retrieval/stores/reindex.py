"""A collection filled anew from the record of truth, and what stands in one that exists.

Laws
    * An existing collection is never taken over: one of another shape, or one that holds a point
      which is not ours, is refused before anything is written or removed. Name another one.
    * What a collection says is believed nowhere: its points are candidates, and whether a unit
      may be read is decided on the truth (``hydrate``, guard). This is about recall only.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import AsyncConnection, Error

from retrieval.embed.ports import Embedder
from retrieval.errors import IndexUnavailable, Store, StoreUnavailable
from retrieval.stores.compare import stretches
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.qdrant import QdrantIndex


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
    equal = stale = missing = 0
    try:
        async with await AsyncConnection.connect(conninfo) as connection:
            async for stretch in stretches(connection, index):
                held = {} if strangers else stretch.held
                same = sum(held.get(one) == label for one, label in stretch.truth.items())
                equal += same
                stale += len(held) - same
                missing += len(stretch.truth.keys() - held.keys())
    except Error as fault:
        raise StoreUnavailable(Store.POSTGRES, type(fault).__name__) from fault
    return Standing(equal=equal, stale=stale, missing=missing, strangers=strangers)


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
