"""A running retrieval service over a small world, on the real engines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID, uuid4

import psycopg
from pydantic import SecretStr

from policies.snapshot import Snapshot
from retrieval.app import open_retrieval
from retrieval.context_pack import Pack
from retrieval.contract import Answer, Ask, RetrieveRequest, SubjectWire
from retrieval.embed.ports import Embedder
from retrieval.service import Retrieval
from retrieval.settings import ServiceSettings, StoreSettings
from retrieval.stores.activation import activate
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, POLICY, dsn_for
from tests.retrieval.index.collections import everything
from tests.retrieval.world import EMBEDDER, World, subject, write
from tests.services import Database, VectorService

T = TypeVar("T")
PACK_ID: Final = re.compile(r'"pack_id":"[0-9a-f-]{36}"')


@dataclass(frozen=True, slots=True, repr=False)
class Stage:
    """A running service and the ways to change its world and to ask it."""

    retrieval: Retrieval
    database: Database
    snapshot: Snapshot
    stores: StoreSettings
    index: QdrantIndex
    worker: OutboxWorker

    async def put(self, world: World) -> None:
        """Adds objects; returns when the index has them."""
        await asyncio.to_thread(self._write, world)
        await self.worker.drain()

    async def clear(self) -> None:
        """Empties the world, whatever hangs on it, and the index, for the next one."""
        for attempt in range(5):
            try:
                await self._truncate()
            except psycopg.errors.DeadlockDetected:  # a worker looks at the tables in its order
                if attempt == 4:
                    raise
            else:
                break
        await self.index.delete([held.unit_id for held in await everything(self.index)])

    async def _truncate(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.database.url) as connection:
            # histories only grow: their triggers are of no concern here
            await connection.execute("set local session_replication_role = replica")
            await connection.execute(
                "truncate brain.unit, brain.unit_revision, brain.embedding, brain.thread,"
                " brain.thread_membership, brain.edge, brain.label, brain.unit_label,"
                " brain.thread_label, brain.expected_artifact, brain.thread_partial,"
                " brain.thread_term, brain.lexicon_partial, brain.corpus_partial,"
                " brain.quarantine, brain.outbox, brain.label_term, gate.consent cascade"
            )

    async def sql(self, statement: str, values: tuple[object, ...] = ()) -> None:
        """Does something to the database that the product never does, as its superuser."""
        async with await psycopg.AsyncConnection.connect(self.database.url) as connection:
            await connection.execute(statement.encode(), values)

    def subject(self, audience: str) -> SubjectWire:
        return subject(audience, self.snapshot)

    async def retrieve(
        self, query: str, who: str | SubjectWire = "customer", **request: object
    ) -> Answer:
        asked = RetrieveRequest.model_validate({"query": query, **request})
        return await self.retrieval.ask(self.envelope("retrieve", who, request=asked))

    async def pack(self, reference: str, who: str | SubjectWire = "customer") -> Answer:
        return await self.retrieval.ask(self.envelope("pack", who, reference=reference))

    async def unit(self, reference: str, who: str | SubjectWire = "customer") -> Answer:
        return await self.retrieval.ask(self.envelope("unit", who, reference=reference))

    def envelope(self, operation: str, who: str | SubjectWire, **fields: object) -> Ask:
        return Ask.model_validate(
            {
                "operation": operation,
                "subject": self.subject(who) if isinstance(who, str) else who,
                "request_id": "test",
                "deadline_ms": 30_000,
                **fields,
            }
        )

    def _write(self, world: World) -> None:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            write(connection, world)


@asynccontextmanager
async def stage(
    database: Database,
    vectors: VectorService,
    snapshot: Snapshot,
    *,
    embedder: Embedder = EMBEDDER,
    settings: ServiceSettings | None = None,
    collection: str = "",
) -> AsyncIterator[Stage]:
    """A service over ``database`` and a collection, by default one of its own."""
    stores = StoreSettings(
        database_url=database.url,
        database_secret=SecretStr(database.secret),
        qdrant_url=vectors.url,
        qdrant_api_key=SecretStr(vectors.api_key),
        collection=collection or fresh_collection(),
        connections_max=2,
    )
    policy = dsn_for(POLICY, database.url, database.secret)
    await asyncio.to_thread(_activate, policy, snapshot)
    index = QdrantIndex(vectors.url, vectors.api_key, stores.collection, embedder.dims)
    worker = OutboxWorker(dsn_for(INDEX, database.url, database.secret), index, embedder)
    async with open_retrieval(stores, lambda: snapshot, embedder, settings=settings) as retrieval:
        try:
            yield Stage(retrieval, database, snapshot, stores, index, worker)
        finally:
            await index.close()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A filled database and collection, on which services can be opened one after another."""

    database: Database
    vectors: VectorService
    snapshot: Snapshot
    collection: str

    def run(
        self, act: Callable[[Stage], Awaitable[T]], *, settings: ServiceSettings | None = None
    ) -> T:
        """Runs ``act`` on a service of its own."""

        async def run() -> T:
            async with stage(
                self.database,
                self.vectors,
                self.snapshot,
                settings=settings,
                collection=self.collection,
            ) as ready:
                return await act(ready)

        return asyncio.run(run())


def prepared(
    database: Database, vectors: VectorService, snapshot: Snapshot, world: World
) -> Prepared:
    """A world, written and indexed."""
    ready = Prepared(database, vectors, snapshot, fresh_collection())
    ready.run(lambda stage: stage.put(world))
    return ready


def fresh_collection() -> str:
    return f"r_{uuid4().hex[:12]}"


def packs(answer: Answer) -> tuple[Pack, ...]:
    """The packs of an answer that must be one."""
    assert answer.status == 200, answer
    assert answer.response is not None
    return answer.response.packs


def wire(answer: Answer) -> str:
    """What would be sent to a caller: the bytes that must not depend on anything hidden.

    Pack ids are random: all are the same one here.
    """
    text = answer.model_dump_json(exclude={"answer_id", "governed", "discrepancies", "timings"})
    return PACK_ID.sub('"pack_id":"-"', text)


def ids_in(text: str, ids: set[UUID]) -> set[UUID]:
    """Which of these ids stand anywhere in a text."""
    return {one for one in ids if str(one) in text}


def _activate(dsn: str, snapshot: Snapshot) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        activate(connection, snapshot)
