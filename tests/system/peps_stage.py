"""The PEP corpus behind a gateway process, and the ways to change it and to wait for its index."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg

from policies.mapping import IngestMapping
from policies.snapshot import Snapshot
from retrieval.embed.ports import Embedder
from retrieval.embedded import Embedded
from retrieval.ingest import Report, run
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, INGEST, dsn_for
from tests import peps
from tests.gateway.cli.made import environment
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.callers import Caller
from tests.system.peps_rules import Library, library
from tests.system.serving import believing, serving

TOKENS: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "customer": ("customer", {}),
    "partner": ("partner", {}),
    "employee": ("employee", {}),
    "agent:drafter": ("agent", {"roles": ["writer"], "tasks": ["draft"]}),
    "agent:auditor": ("agent", {"roles": ["auditor"], "tasks": ["audit"]}),
}


@dataclass(frozen=True, slots=True)
class Served:
    """A running gateway with the corpus in both of its stores.

    ``unit_ids`` and ``thread_ids`` are by address, read from the database.
    """

    url: str
    env: Mapping[str, str]
    library: Library
    unit_ids: Mapping[str, UUID]
    thread_ids: Mapping[str, UUID]
    embedder: Embedder
    folder: Path
    _issuers: Issuers
    _database: Database
    _vectors: Embedded

    def caller(self, reader: str) -> Caller:
        kind, claims = TOKENS[reader]
        until = int(time.time()) + 600
        return Caller(self.url, self._issuers.token(kind, exp=until, **claims))

    def sql(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._database.url) as connection:
            return connection.execute(query.encode(), values or None).fetchall()

    def ingest(self, records: Iterable[Mapping[str, Any]], mapping: IngestMapping) -> Report:
        """Ingest these records as the corpus' own; returns when the index has them."""
        source = self.folder / "changes.jsonl"
        source.write_text("".join(json.dumps(one) + "\n" for one in records))
        login = dsn_for(INGEST, self._database.url, self._database.secret)
        report = run(source, mapping, dsn=login, origin="peps", embedder=self.embedder)
        self.settle()
        return report

    def settle(self) -> None:
        """Return when the index holds everything; the gateway's own worker is at it, too."""

        config = tomllib.loads(Path(self.env["GATEWAY_CONFIG"]).read_text())

        async def drain() -> None:
            index = QdrantIndex(
                self._vectors.qdrant_url,
                self._vectors.qdrant_api_key,
                config["qdrant"]["collection"],
                self.embedder.dims,
            )
            login = dsn_for(INDEX, self._database.url, self._database.secret)
            try:
                await index.ensure()
                await OutboxWorker(login, index, self.embedder).drain()
            finally:
                await index.close()

        asyncio.run(drain())


@contextmanager
def served(
    database: Database,
    services: Embedded,
    shared_data: Path,
    folder: Path,
    *,
    embedder: Embedder,
    **settings: str,
) -> Iterator[Served]:
    """A gateway over ``database``, which holds the corpus, with an index of its own."""
    issuers = Issuers()
    env = environment(services, database, folder)
    env |= {"GATEWAY_POLICY": str(believing(issuers, folder)), "GATEWAY_EMBEDDER": embedder.name}
    with serving(env | settings) as url, psycopg.connect(database.url) as connection:
        ready = Served(
            url=url,
            env=env | settings,
            library=library(shared_data),
            unit_ids=dict(connection.execute("select canonical_address, id from brain.unit")),
            thread_ids=dict(connection.execute("select canonical_address, id from brain.thread")),
            embedder=embedder,
            folder=folder,
            _issuers=issuers,
            _database=database,
            _vectors=services,
        )
        connection.commit()
        ready.settle()
        yield ready


def mapping(snapshot: Snapshot, name: str) -> IngestMapping:
    """``peps``, or one that is installed."""
    return peps.mapping(snapshot) if name == "peps" else snapshot.mappings[name]
