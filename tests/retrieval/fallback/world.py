"""A small company on real services: record of truth, index, worker, and callers of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import psycopg

from policies.snapshot import Snapshot
from retrieval.contract import SubjectWire
from retrieval.embed.ports import Embedder
from retrieval.fallback.candidates import WORD_PAIRS, Found, search
from retrieval.fallback.fusion import Fusion, min_max
from retrieval.fallback.rerank import Reranker
from retrieval.stores.activation import activate
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.points import CandidateIndex
from retrieval.stores.postgres.truth import PostgresTruth
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, dsn_for
from tests.retrieval.index.collections import collection
from tests.retrieval.truth import Record
from tests.services import Database, VectorService


@dataclass(frozen=True, slots=True)
class World:
    """``search`` as one profile; ``settle`` after every change that the index should know."""

    record: Record
    truth: PostgresTruth
    index: QdrantIndex
    worker: OutboxWorker
    embedder: Embedder
    snapshot: Snapshot

    async def settle(self) -> None:
        await self.worker.drain()

    async def search(
        self,
        query: str,
        *,
        profile: str = "customer",
        tenants: Sequence[str] = (),
        k: int = 10,
        exclude: Collection[UUID] = (),
        index: CandidateIndex | None = None,
        fusion: Fusion = min_max,
        reranker: Reranker | None = WORD_PAIRS,
    ) -> Found:
        subject = SubjectWire(
            subject_id="somebody",
            audience=self.snapshot.vocabulary.profiles[profile],
            profiles=(profile,),
            tenants=tuple(tenants),
            jurisdictions=(),
            task_scope="",
            purpose="",
            policy_digest=self.snapshot.digest,
        )
        async with self.truth.reading(subject, self.snapshot) as reader:
            return await search(
                query,
                reader,
                index or self.index,
                self.embedder,
                k=k,
                exclude=exclude,
                fusion=fusion,
                reranker=reranker,
            )

    async def another_index(self, index: QdrantIndex) -> None:
        """Fills an empty collection from the truth, as after a loss."""
        worker = OutboxWorker(self.worker._conninfo, index, self.embedder)
        await worker.sweep()
        await worker.drain()


@asynccontextmanager
async def world(
    database: Database, sidecar: VectorService, snapshot: Snapshot, embedder: Embedder
) -> AsyncIterator[World]:
    with psycopg.connect(database.url) as admin:
        activate(admin, snapshot)
    truth = PostgresTruth(
        database.url,
        database.secret,
        sorted(set(snapshot.vocabulary.profiles.values())),
        # else load decides what is "pending", and whether a connection comes in time
        wait_s=30,
        lag_objective_s=3_600,
    )
    await truth.open()
    try:
        with Record(database.url, snapshot.vocabulary, embedder) as record:
            async with collection(sidecar, dims=embedder.dims) as index:
                conninfo = dsn_for(INDEX, database.url, database.secret)
                worker = OutboxWorker(conninfo, index, embedder)
                yield World(record, truth, index, worker, embedder, snapshot)
    finally:
        await truth.close()


def bytes_of(found: Found) -> bytes:
    """What a caller could see of a result."""
    return repr([(str(hit.unit.id), hit.score, hit.unit) for hit in found.hits]).encode()
