"""A migrated database under an active policy, and short ways to fill and to read it.

Content is written as ``gw_ingest`` writes it: words of facets, never class ids.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg

from policies.snapshot import Snapshot
from policies.vocabulary import FACETS
from retrieval.contract import SubjectWire
from retrieval.stores.activation import activate
from retrieval.stores.postgres import PostgresTruth
from retrieval.stores.postgres.reader import PostgresReader
from retrieval.stores.roles import INGEST, POLICY, dsn_for
from tests.services import Database

OPEN = ("public", "published", "published", "low", "enacted", "faq")
"""A state that the default policy shows to everybody."""

SECRET = ("restricted", "published", "published", "low", "enacted", "faq")
"""A state that it shows to none of customer, partner and employee."""

OPEN_THREAD = (*OPEN[:5], "thread")

Words = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class World:
    """One database. Every method is its own transaction, as its own station."""

    database: Database
    snapshot: Snapshot

    def dsn(self, role: str) -> str:
        return dsn_for(role, self.database.url, self.database.secret)

    @contextmanager
    def login(self, role: str) -> Iterator[psycopg.Connection[Any]]:
        """A session of that station. Ingest works for one source here, called ``world``."""
        with psycopg.connect(self.dsn(role), autocommit=True) as connection:
            if role == INGEST:
                connection.execute("select set_config('gw.origin', 'world', false)")
            yield connection

    def run(self, statement: str, values: Sequence[object] = (), *, role: str = INGEST) -> None:
        with self.login(role) as connection:
            connection.execute(statement.encode(), values)

    def ask(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """What the superuser sees: everything, row-level security does not apply to it."""
        with psycopg.connect(self.database.url) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def one(self, statement: str, values: Sequence[object] = ()) -> Any:
        rows = self.ask(statement, values)
        assert len(rows) == 1
        return rows[0][0]

    def as_superuser(self, statement: str, values: Sequence[object] = ()) -> None:
        with psycopg.connect(self.database.url) as connection:
            connection.execute(statement.encode(), values or None)

    # --- content --------------------------------------------------------------------------

    def unit(
        self,
        words: Words = OPEN,
        *,
        tenant: str = "*",
        jurisdiction: str = "*",
        body: str = "body",
        terms: Sequence[int] = (),
        thread: UUID | None = None,
        unit_id: UUID | None = None,
    ) -> UUID:
        unit_id = unit_id or uuid4()
        with self.login(INGEST) as connection, connection.transaction():
            connection.execute(
                f"insert into brain.unit (id, canonical_address, title, {', '.join(FACETS)},"
                " tenant, jurisdiction, current_revision, content_hash)"
                " values (%s, %s, 'title', %s, %s, %s, %s, %s, %s, %s, %s, 1, 'hash')",
                [unit_id, f"unit/{unit_id}", *words, tenant, jurisdiction],
            )
            connection.execute(
                "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256,"
                " lexical_terms, lexical_weights) values (%s, 1, 'title', %s, 'sha', %s, %s)",
                [unit_id, body, sorted(terms), [1.0] * len(terms)],
            )
            if thread is not None:
                connection.execute(LINK, [thread, unit_id, "active"])
        return unit_id

    def thread(
        self, words: Words = OPEN_THREAD, *, tenant: str = "*", jurisdiction: str = "*"
    ) -> UUID:
        thread_id = uuid4()
        self.run(
            f"insert into brain.thread (id, canonical_address, title, {', '.join(FACETS)},"
            " tenant, jurisdiction) values (%s, %s, 'title', %s, %s, %s, %s, %s, %s, %s, %s)",
            [thread_id, f"thread/{thread_id}", *words, tenant, jurisdiction],
        )
        return thread_id

    def link(self, thread: UUID, unit: UUID, status: str = "active") -> None:
        self.run(LINK, [thread, unit, status])

    def consent(
        self, subject: str, *, unit: UUID | None = None, thread: UUID | None = None
    ) -> None:
        self.run(
            "insert into gate.consent (subject_id, purpose, unit_id, thread_id, approver,"
            " granted_at, expires_at) values (%s, 'support', %s, %s, 'boss',"
            " now() - interval '1 minute', now() + interval '1 hour')",
            [subject, unit, thread],
            role=POLICY,
        )

    def class_of(self, unit: UUID) -> int:
        return int(self.one("select class_id from brain.unit where id = %s", [unit]))

    def class_id(self, words: Words) -> int:
        return self.snapshot.vocabulary.class_id(dict(zip(FACETS, words, strict=True)))

    # --- reading --------------------------------------------------------------------------

    def subject(
        self,
        *profiles: str,
        tenants: Sequence[str] = (),
        jurisdictions: Sequence[str] = (),
        subject_id: str = "subject",
        purpose: str = "",
    ) -> SubjectWire:
        return SubjectWire(
            subject_id=subject_id,
            audience=self.snapshot.vocabulary.profiles.get(profiles[0], "customer"),
            profiles=profiles,
            tenants=tuple(tenants),
            jurisdictions=tuple(jurisdictions),
            task_scope="answer",
            purpose=purpose,
            policy_digest=self.snapshot.digest,
        )

    @asynccontextmanager
    async def truth(self, *audiences: str) -> AsyncIterator[PostgresTruth]:
        truth = PostgresTruth(
            self.database.url,
            self.database.secret,
            audiences or ("customer",),
            connections_max=2,
        )
        await truth.open()
        try:
            yield truth
        finally:
            await truth.close()

    @asynccontextmanager
    async def reading(self, subject: SubjectWire) -> AsyncIterator[PostgresReader]:
        async with (
            self.truth(subject.audience) as truth,
            truth.reading(subject, self.snapshot) as reader,
        ):
            yield reader


@dataclass(frozen=True, slots=True)
class LastingWorld(World):
    """A world whose sessions stay open until it is left: to log in takes longer than to edit."""

    _open: ExitStack = field(default_factory=ExitStack)
    _sessions: dict[str, psycopg.Connection[Any]] = field(default_factory=dict)

    def __enter__(self) -> LastingWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @contextmanager
    def login(self, role: str) -> Iterator[psycopg.Connection[Any]]:
        if role not in self._sessions:
            self._sessions[role] = self._open.enter_context(World.login(self, role))
        yield self._sessions[role]

    @contextmanager
    def owner(self) -> Iterator[psycopg.Connection[Any]]:
        """A session of the superuser."""
        if "" not in self._sessions:
            session = psycopg.connect(self.database.url, autocommit=True)
            self._sessions[""] = self._open.enter_context(session)
        yield self._sessions[""]

    def ask(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.owner() as connection:
            return connection.execute(statement.encode(), values).fetchall()


LINK = (
    "insert into brain.thread_membership (thread_id, unit_id, role, status)"
    " values (%s, %s, 'canonical', %s)"
)


def world_in(database: Database, snapshot: Snapshot) -> World:
    world = World(database, snapshot)
    with world.login(POLICY) as connection:
        activate(connection, snapshot)
    return world
