"""The vector side as the service sees it: index, embedder and the worker that feeds them.

Laws
    * A search either has both of its branches or raises ``IndexUnavailable``.
    * Whether the side answers is asked of it now, never remembered: concurrent requests share
      one question, a later request asks anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, TypedDict
from uuid import UUID

from retrieval.embed.ports import Embedder
from retrieval.errors import IndexUnavailable, StoreUnavailable
from retrieval.fallback.candidates import Found, embedded, search
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.ports import TruthReader
from retrieval.stores.qdrant import QdrantIndex

_ANSWERS_WITHIN_S: Final = 0.5
"""An index that takes longer to say that it is there is as good as down."""


class VectorState(TypedDict):
    """``pending`` and ``oldest_s`` are -1 when the outbox cannot be read."""

    qdrant: str
    pending: int
    oldest_s: float
    set_aside: int


class VectorSide:
    """Index and embedder together; one per process and event loop."""

    def __init__(self, index: QdrantIndex, embedder: Embedder, worker: OutboxWorker) -> None:
        self._index: Final = index
        self._embedder: Final = embedder
        self._worker: Final = worker
        self._asking: asyncio.Task[bool] | None = None

    async def search(
        self, query: str, reader: TruthReader, *, k: int, exclude: Collection[UUID]
    ) -> Found:
        """See ``fallback.candidates.search``; the embedding runs off the event loop."""
        return await search(query, reader, self._index, self._embedder, k=k, exclude=exclude)

    @property
    def model(self) -> str:
        """The name under which vectors of this side are stored."""
        return self._embedder.name

    async def embedded(self, question: str) -> bytes | None:
        """The stored form of a question's vector; ``None`` when the model was not trained on its
        language or finds nothing in it. Raises IndexUnavailable when the embedder fails."""
        if not self._embedder.reads(question):
            return None
        return await asyncio.to_thread(embedded, self._embedder, question)

    async def answers(self) -> bool:
        """Whether the index can be read at this moment. Cost: at most one call at a time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def state(self) -> VectorState:
        """For operators: whether the index answers, and how far it is behind."""
        qdrant = "up" if await self.answers() else "down"
        try:
            lag = await self._worker.lag()
        except StoreUnavailable:
            return VectorState(qdrant=qdrant, pending=-1, oldest_s=-1.0, set_aside=-1)
        return VectorState(
            qdrant=qdrant,
            pending=lag.pending,
            oldest_s=round(lag.oldest_s, 3),
            set_aside=lag.set_aside,
        )

    async def close(self) -> None:
        """Lets go of the index's connections."""
        if self._asking is not None:
            await self._asking
        await self._index.close()

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                await self._index.ping()
        except (IndexUnavailable, TimeoutError):
            return False
        return True
