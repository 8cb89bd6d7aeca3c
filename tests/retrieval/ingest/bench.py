"""A place to ingest small sources into: a folder and a database, and questions about both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from policies.mapping import IngestMapping
from policies.snapshot import Snapshot
from retrieval.embed.ports import Embedder
from retrieval.ingest import Report, run
from retrieval.stores.roles import INGEST, dsn_for
from tests.services import Database

Line = Mapping[str, Any] | str | bytes

GOOD = {
    "visibility": "public",
    "readiness": "published",
    "publication_state": "published",
    "risk_class": "standard",
    "authority": "enacted",
    "kind": "faq",
    "lifecycle_stage": "other",
    "tenant": "*",
    "jurisdiction": "*",
}


def unit(address: str = "a/1", /, **more: object) -> dict[str, Any]:
    """A good native unit record; a value of ``...`` leaves the field out."""
    made = {"sort": "unit", "address": address, "title": "T", "body": "words here", **GOOD, **more}
    return {name: value for name, value in made.items() if value is not ...}


def thread(address: str = "t/1", **more: object) -> dict[str, Any]:
    made = {"sort": "thread", "address": address, "title": "Thread", **GOOD, "kind": "thread"}
    made.pop("lifecycle_stage")
    return {name: value for name, value in {**made, **more}.items() if value is not ...}


@dataclass(frozen=True, slots=True)
class Bench:
    """One test's folder, database and policy."""

    folder: Path
    database: Database
    snapshot: Snapshot

    @property
    def native(self) -> IngestMapping:
        return self.snapshot.mappings["native"]

    @property
    def dsn(self) -> str:
        return dsn_for(INGEST, self.database.url, self.database.secret)

    def write(self, lines: Iterable[Line], name: str = "s.jsonl") -> Path:
        """A source of these lines: records as JSON, texts and bytes as they are."""
        path = self.folder / name
        path.write_bytes(b"\n".join(map(_line, lines)) + b"\n")
        return path

    def run(
        self,
        lines: Iterable[Line],
        *,
        mapping: IngestMapping | None = None,
        embedder: Embedder | None = None,
        **options: Any,
    ) -> Report:
        """Write these lines to the source and ingest it."""
        path = self.write(lines)
        return run(path, mapping or self.native, dsn=self.dsn, embedder=embedder, **options)

    def all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.url) as connection:
            return connection.execute(query.encode(), values or None).fetchall()

    def one(self, query: str, *values: object) -> tuple[Any, ...]:
        (row,) = self.all(query, *values)
        return row

    def open_quarantine(self) -> set[tuple[str, str, str, str]]:
        """(sort, address, facet, reason) of all open rows."""
        return {
            (sort, address, facet, reason)
            for sort, address, facet, reason in self.all(
                "select sort, address, facet, reason from brain.quarantine"
                " where resolved_at is null"
            )
        }


def _line(line: Line) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode("utf-8", "surrogatepass")
