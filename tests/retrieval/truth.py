"""Units written straight into the record of truth, as the superuser, for tests of what follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from policies.vocabulary import Vocabulary
from retrieval.embed.ports import Embedder, unit_text
from retrieval.embed.quantise import pack
from retrieval.lexical import document_form

FACETS = ("visibility", "readiness", "publication_state", "risk_class", "authority", "kind")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit by the class it should get; -1 leaves its visibility blank."""

    id: UUID
    class_id: int
    title: str
    body: str
    tenant: str = "*"
    jurisdiction: str = "*"

    @property
    def address(self) -> str:
        return f"test/{self.id}"


class Record:
    """Writes to one database. Every call is a transaction of its own."""

    def __init__(self, url: str, vocabulary: Vocabulary, embedder: Embedder | None = None) -> None:
        self._connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._vocabulary = vocabulary
        self._embedder = embedder

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def put(self, units: Sequence[Unit]) -> None:
        """New units at revision 1, with their vectors if there is an embedder."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(
                "insert into brain.unit (id, canonical_address, title, visibility, readiness,"
                " publication_state, risk_class, authority, kind, tenant, jurisdiction,"
                " current_revision, content_hash)"
                " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 1, '')",
                [
                    (u.id, u.address, u.title, *self._words(u.class_id), u.tenant, u.jurisdiction)
                    for u in units
                ],
            )
            self._revisions(cursor, units, revision=1)

    def revise(self, units: Sequence[Unit], *, revision: int) -> None:
        """A new current revision of each."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            self._revisions(cursor, units, revision=revision)
            cursor.executemany(
                "update brain.unit set current_revision = %s where id = %s",
                [(revision, u.id) for u in units],
            )

    def relabel(self, units: Iterable[Unit]) -> None:
        """The facets and compartments that these units now have."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(
                "update brain.unit set visibility = %s, readiness = %s, publication_state = %s,"
                " risk_class = %s, authority = %s, kind = %s, tenant = %s, jurisdiction = %s"
                " where id = %s",
                [(*self._words(u.class_id), u.tenant, u.jurisdiction, u.id) for u in units],
            )

    def bury(self, units: Iterable[Unit]) -> None:
        self.execute(
            "update brain.unit set deleted_at = now() where id = any (%s)", [u.id for u in units]
        )

    def pending(self) -> int:
        return int(self.execute("select count(*) from brain.outbox where done_at is null")[0][0])

    def _words(self, class_id: int) -> list[str | None]:
        words = self._vocabulary.facets_of(max(class_id, 0))
        return [
            None if class_id < 0 and facet == "visibility" else words[facet] for facet in FACETS
        ]

    def _revisions(
        self, cursor: psycopg.Cursor[Any], units: Sequence[Unit], *, revision: int
    ) -> None:
        cursor.executemany(
            "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256,"
            " lexical_terms, lexical_weights) values (%s, %s, %s, %s, '', %s, %s)",
            [(u.id, revision, u.title, u.body, *document_form(u.title, u.body)) for u in units],
        )
        if self._embedder is None:
            return
        vectors = self._embedder.embed([unit_text(u.title, u.body) for u in units])
        cursor.executemany(
            "insert into brain.embedding (unit_id, revision, model, vector)"
            " values (%s, %s, %s, %s)",
            [
                (u.id, revision, self._embedder.name, pack(v))
                for u, v in zip(units, vectors, strict=True)
            ],
        )
