"""The label registry on the real database, as the guard's own role.

Provenance: architecture section 6; issue part 4 ("Egress guard on every unit").
"""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import psycopg
import pytest

from gateway.egress.registry import (
    Content,
    Label,
    PostgresRegistry,
    Registered,
    RegistryUnavailable,
)
from retrieval.stores.roles import GUARD, dsn_for
from tests.services import Database

UNIT = """
insert into brain.unit (id, canonical_address, title, visibility, readiness, publication_state,
  risk_class, authority, kind, tenant, jurisdiction, current_revision, content_hash, deleted_at)
values (%s, %s, 'secret title', 'public', 'published', 'published', 'high', 'enacted', 'faq',
  'acme', '*', 2, 'h', %s)
"""
REVISION = """
insert into brain.unit_revision (unit_id, revision, title, body, body_sha256)
values (%s, %s, 'secret title', 'secret body', %s)
"""


def look_up(database: Database, *ids: UUID, subject: str = "s.1") -> Registered:
    async def scenario() -> Registered:
        registry = PostgresRegistry(dsn_for(GUARD, database.url, database.secret))
        await registry.open()
        try:
            return await registry.look_up(
                {("unit", one) for one in ids}, subject_id=subject, purpose="audit"
            )
        finally:
            await registry.close()

    return asyncio.run(scenario())


@pytest.fixture
def labelled(database: Database) -> tuple[Database, UUID, UUID]:
    """One live and one deleted unit."""
    live, deleted = uuid4(), uuid4()
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(UNIT, (live, "a#1", None))
        connection.execute(REVISION, (live, 1, "old"))
        connection.execute(REVISION, (live, 2, "new"))
        connection.execute(UNIT, (deleted, "a#2", "2020-01-01"))
        connection.execute(
            "insert into gate.active_revision (digest, generation) values (%s, 1)"
            " on conflict (one) do update set digest = excluded.digest",
            ("d" * 64,),
        )
    return database, live, deleted


def test_labels_are_the_record_of_truths(labelled: tuple[Database, UUID, UUID]) -> None:
    """Live ones with class and compartments; deleted and unknown ones not at all."""
    database, live, deleted = labelled
    found = look_up(database, live, deleted, uuid4())
    assert set(found.labels) == {("unit", live)}
    label = found.labels["unit", live]
    assert isinstance(label, Label)
    assert (label.tenant, label.jurisdiction) == ("acme", "*")
    assert label.class_id >= 0
    assert found.digest == "d" * 64
    assert found.contents == {live: Content("a#1", 2, "new")}


def test_consents_count_by_the_databases_clock(labelled: tuple[Database, UUID, UUID]) -> None:
    """A live consent of this subject and purpose; an expired or revoked one is none."""
    database, live, _ = labelled
    statement = (
        "insert into gate.consent (subject_id, purpose, unit_id, approver, granted_at,"
        " expires_at, revoked_at) values (%s, 'audit', %s, 'a', now() - interval '2 hours',"
        " now() + %s::interval, %s)"
    )
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(statement, ("s.expired", live, "-1 hour", None))
        connection.execute(statement, ("s.revoked", live, "1 hour", "2020-01-01"))
        connection.execute(statement, ("s.live", live, "1 hour", None))
    assert look_up(database, live, subject="s.live").consented == (live,)
    assert look_up(database, live, subject="s.expired").consented == ()
    assert look_up(database, live, subject="s.revoked").consented == ()
    assert look_up(database, live, subject="s.other").consented == ()


@pytest.mark.parametrize(
    "statement",
    [
        "select title from brain.unit",
        "select canonical_address from brain.thread",
        "select title from brain.unit_revision",
        "select body from brain.unit_revision",
        "select * from brain.unit_revision",
        "select * from gate.consent",
        "select * from gate.security_event",
    ],
)
def test_the_guards_role_can_read_no_content(database: Database, statement: str) -> None:
    """Labels, addresses and hashes: a stolen guard connection shows no title, body or consent."""
    with (
        psycopg.connect(dsn_for(GUARD, database.url, database.secret)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


def test_unreachable_database_is_an_error_of_its_own() -> None:
    """Never an empty look-up: nothing may leave."""

    async def scenario() -> None:
        registry = PostgresRegistry("host=127.0.0.1 port=1 dbname=x connect_timeout=1", wait_s=0.5)
        await registry.open()
        try:
            with pytest.raises(RegistryUnavailable):
                await registry.look_up({("unit", uuid4())}, subject_id="s", purpose="")
        finally:
            await registry.close()

    asyncio.run(scenario())
