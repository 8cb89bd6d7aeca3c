"""The retrieval service with a stopwatch at each store.

Put together as ``retrieval.app`` does, without the outbox worker: what is measured should be the
request, and no sweep beside it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from policies.snapshot import Snapshot
from retrieval.contract import Answer, Ask, RetrieveRequest, SubjectWire
from retrieval.embed.ports import Embedder, Vector
from retrieval.service import Retrieval
from retrieval.settings import ServiceSettings
from retrieval.signals.ledger import Ledger
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.postgres import PostgresTruth
from retrieval.stores.postgres.reader import PostgresReader
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, dsn_for
from retrieval.vectors import VectorSide
from tests.bench.scale.corpus import LADDER
from tests.bench.scale.load import OURS
from tests.services import Database, VectorService

Spent = defaultdict[str, float]
"""Milliseconds of one request by the store that was waited for."""


class _Watched:
    """Another object, with the time of its coroutine methods added up under one name."""

    def __init__(self, inner: object, name: str, spent: Spent) -> None:
        self._inner, self._name, self._spent = inner, name, spent

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def timed(*values: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return await found(*values, **named)
            finally:
                self._spent[self._name] += (time.perf_counter() - began) * 1e3

        return timed


class _Truth(PostgresTruth):
    """The record of truth; entering a role and every read count as Postgres."""

    spent: Spent

    @asynccontextmanager
    async def reading(
        self, subject: SubjectWire, snapshot: Snapshot
    ) -> AsyncIterator[PostgresReader]:
        began = time.perf_counter()
        async with super().reading(subject, snapshot) as reader:
            self.spent["postgres"] += (time.perf_counter() - began) * 1e3
            yield cast(PostgresReader, _Watched(reader, "postgres", self.spent))


@dataclass(slots=True)
class _Embedder:
    """Runs beside a look-up in the database, so the parts add up to more than the whole."""

    inner: Embedder
    spent: Spent

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def dims(self) -> int:
        return self.inner.dims

    def reads(self, text: str) -> bool:
        return self.inner.reads(text)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        began = time.perf_counter()
        rows = self.inner.embed(texts)
        self.spent["embedder"] += (time.perf_counter() - began) * 1e3
        return rows


@dataclass(frozen=True, slots=True)
class Service:
    """``spent`` is of the last request; the stores are the service's own."""

    retrieval: Retrieval
    truth: PostgresTruth
    index: QdrantIndex
    worker: OutboxWorker
    embedder: Embedder
    snapshot: Snapshot
    spent: Spent = field(default_factory=lambda: defaultdict(float))

    async def ask(self, step: int, text: str, *, raw: bool = False) -> Answer:
        """One request of the profile of that step, through all of the service."""
        self.spent.clear()
        request = RetrieveRequest(query=text, mode="raw" if raw else "auto")
        return await self.retrieval.ask(
            Ask(
                operation="retrieve",
                subject=self.subject(step),
                request=request,
                request_id="bench",
                deadline_ms=30_000,
            )
        )

    def subject(self, step: int) -> SubjectWire:
        profile = LADDER[step]
        return SubjectWire(
            subject_id=f"bench-{step}",
            audience=self.snapshot.vocabulary.profiles[profile],
            profiles=(profile,),
            tenants=(),
            jurisdictions=(),
            task_scope="",
            purpose="",
            policy_digest=self.snapshot.digest,
        )


@asynccontextmanager
async def opened(
    database: Database, vectors: VectorService, snapshot: Snapshot, embedder: Embedder
) -> AsyncIterator[Service]:
    """A service over a filled database and collection."""
    spent: Spent = defaultdict(float)
    truth = _Truth(database.url, database.secret, snapshot.vocabulary.audiences, connections_max=2)
    truth.spent = spent
    ledger = Ledger(database.url, database.secret, connections_max=2)
    index = QdrantIndex(vectors.url, vectors.api_key, OURS, embedder.dims)
    worker = OutboxWorker(dsn_for(INDEX, database.url, database.secret), index, embedder)
    side = VectorSide(
        cast(QdrantIndex, _Watched(index, "qdrant", spent)), _Embedder(embedder, spent), worker
    )
    retrieval = Retrieval(
        settings=ServiceSettings(),
        snapshot=lambda: snapshot,
        truth=truth,
        vectors=side,
        ledger=cast(Ledger, _Watched(ledger, "ledger", spent)),
    )
    try:
        await truth.open()
        await ledger.open()
        await index.ensure()
        await asyncio.to_thread(embedder.embed, ["warm"])
        yield Service(retrieval, truth, index, worker, embedder, snapshot, spent)
    finally:
        await side.close()
        await ledger.close()
        await truth.close()
