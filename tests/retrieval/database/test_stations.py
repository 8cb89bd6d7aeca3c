"""What each login can reach, tried by the statements an injected one would use.

Attack tests: the connection is the attacker's, with the password of its station.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from retrieval.stores.roles import (
    GUARD,
    INDEX,
    INGEST,
    JOURNAL,
    LABEL,
    LIVE,
    OWNER,
    POLICY,
    SEAL,
    STATIONS,
    WATCH,
    profile_role,
    serving_login,
)
from tests.retrieval.database.world import SECRET, World

READABLE = (
    "brain.unit",
    "brain.unit_revision",
    "brain.embedding",
    "brain.thread",
    "brain.thread_membership",
    "brain.edge",
    "brain.label",
    "brain.unit_label",
    "brain.thread_label",
    "brain.expected_artifact",
    "brain.thread_partial",
    "brain.thread_term",
    "brain.lexicon_partial",
    "brain.corpus_partial",
)


def refused(
    connection: psycopg.Connection[Any], statement: str, values: Sequence[object] | None = None
) -> bool:
    try:
        connection.execute(statement.encode(), values)
    except errors.InsufficientPrivilege:
        return True
    return False


def fill(world: World) -> None:
    """At least one row, open to everybody, in every readable table."""
    thread = world.thread()
    units = [world.unit(terms=[1], thread=thread) for _ in range(2)]
    world.run("insert into brain.embedding values (%s, 1, 'm', '\\x00')", [units[0]])
    world.run(
        "insert into brain.edge (id, src, dst, relation) values (gen_random_uuid(), %s, %s, 'a')",
        units,
    )
    world.run("insert into brain.thread_term (term, thread_id, weight) values (1, %s, 1)", [thread])
    words = "'public', 'published', 'published', 'low', 'enacted', 'other', '*', '*'"
    facets = (
        "visibility, readiness, publication_state, risk_class, authority, kind, tenant,"
        " jurisdiction"
    )
    label = uuid4()
    world.run(f"insert into brain.label (id, term, {facets}) values (%s, 'w', {words})", [label])
    world.run("insert into brain.unit_label values (%s, %s)", [label, units[0]])
    world.run("insert into brain.thread_label values (%s, %s)", [label, thread])
    world.run(
        f"insert into brain.expected_artifact (id, thread_id, title, lifecycle_stage, {facets})"
        f" values (gen_random_uuid(), %s, 'report', 'report', {words})",
        [thread],
    )


def counts(connection: psycopg.Connection[Any]) -> dict[str, int]:
    found = {}
    for table in READABLE:
        row = connection.execute(f"select count(*) from {table}".encode()).fetchone()
        assert row is not None
        found[table] = row[0]
    return found


def take_role(connection: psycopg.Connection[Any], profile: str, *, settings: bool) -> None:
    connection.execute("select set_config('role', %s, true)", [profile_role(profile)])
    if settings:
        connection.execute(
            "select set_config('gw.tenants', '{}', true),"
            " set_config('gw.jurisdictions', '{}', true)"
        )


def test_a_role_with_settings_reads_every_table_and_without_reads_none(world: World) -> None:
    """Unset settings give no row at all, shared ones included; so does a reused connection,
    on which a setting of the past transaction reads as an empty string."""
    fill(world)
    with world.login(serving_login("customer")) as connection:
        for _ in range(2):
            with connection.transaction():
                take_role(connection, "customer", settings=False)
                assert set(counts(connection).values()) == {0}
            with connection.transaction():
                take_role(connection, "customer", settings=True)
                assert all(counts(connection).values())


def test_a_login_without_a_role_reads_nothing(world: World) -> None:
    """NOINHERIT: before `set role`, and after `reset role`, there is no access."""
    fill(world)
    with world.login(serving_login("customer")) as connection:
        for table in READABLE:
            assert refused(connection, f"select from {table}")
        connection.execute(f"set role {profile_role('customer')}")
        connection.execute("reset role")
        assert all(refused(connection, f"select from {table}") for table in READABLE)


def test_no_login_can_take_the_role_of_another_audience(world: World) -> None:
    """Nor the owner's, nor a superuser's, nor another station's."""
    profiles = world.snapshot.vocabulary.profiles
    for audience in world.snapshot.vocabulary.audiences:
        others = [profile_role(p) for p, of in profiles.items() if of != audience]
        with world.login(serving_login(audience)) as connection:
            for role in (*others, OWNER, "postgres", *STATIONS):
                assert refused(connection, f"set role {role}")
                assert refused(connection, f"set session authorization {role}")
                assert refused(connection, "select set_config('role', %s, true)", [role])


def test_a_reader_cannot_write_or_read_what_is_not_its_own(world: World) -> None:
    """No verb but select, no policy of others, no consents, no journal, no outbox."""
    fill(world)
    with world.login(serving_login("agent")) as connection:
        connection.execute(f"set role {profile_role('agent:auditor')}")
        for table in READABLE:
            assert refused(connection, f"delete from {table}")
        for table in (
            "gate.consent",
            "gate.consented_unit",
            "gate.security_event",
            "gate.audience_filter_policy",
            "brain.outbox",
            "brain.quarantine",
            "brain.labelled",
            "migration.applied",
        ):
            assert refused(connection, f"select from {table}")
        assert refused(connection, "select profile from gate.profile_role")
        own = connection.execute("select role, audience from gate.profile_role").fetchall()
        assert refused(connection, "create table brain.mine ()")
        assert refused(connection, "select brain.relabel_all()")
        rows = connection.execute("select distinct profile from gate.profile_grant").fetchall()
    assert rows == [("agent:auditor",)]
    assert own == [(profile_role("agent:auditor"), "agent")]


def test_the_pool_hands_out_connections_that_remember_nothing(world: World) -> None:
    """One pooled connection, two subjects: role, compartments and consents do not carry over."""
    mine = world.unit(tenant="mine")
    risky = world.unit(("public", "published", "published", "high", "enacted", "faq"))
    world.consent("subject", unit=risky)

    async def main() -> list[set[UUID]]:
        seen = []
        async with world.truth("customer") as truth:
            for subject in (
                world.subject("customer", tenants=["mine"], purpose="support"),
                world.subject("customer"),
                world.subject("customer", subject_id="other", purpose="support"),
            ):
                async with truth.reading(subject, world.snapshot) as reader:
                    seen.append(set((await reader.hydrate([mine, risky])).units))
        return seen

    assert asyncio.run(main()) == [{mine, risky}, set(), set()]


def test_the_guard_sees_labels_of_all_and_content_of_none(world: World) -> None:
    """Column grants: id, class, compartments, tombstone; what identifies a content, not itself."""
    unit = world.unit(SECRET)
    world.consent("subject", unit=unit)
    with world.login(GUARD) as connection:
        assert connection.execute(
            "select id, class_id, tenant, jurisdiction, deleted_at from brain.unit"
        ).fetchall() == [(unit, world.class_id(SECRET), "*", "*", None)]
        assert connection.execute("select * from gate.consented_unit").fetchall() == [
            ("subject", "support", unit)
        ]
        connection.execute("select digest, generation from gate.active_revision")
        connection.execute("select canonical_address, current_revision from brain.unit")
        connection.execute("select unit_id, revision, body_sha256 from brain.unit_revision")
        for column in ("title", "visibility", "source", "content_hash"):
            assert refused(connection, f"select {column} from brain.unit")
        for column in ("title", "aliases", "description", "canonical_address"):
            assert refused(connection, f"select {column} from brain.thread")
        assert refused(connection, "select title from brain.expected_artifact")
        for column in ("title", "body", "lexical_terms"):
            assert refused(connection, f"select {column} from brain.unit_revision")
        for table in ("brain.embedding", "gate.consent"):
            assert refused(connection, f"select from {table}")
        assert refused(connection, "update brain.unit set class_id = 0")


def test_each_writer_can_write_only_at_its_own_station(world: World) -> None:
    unit = world.unit()
    attempts = {
        INGEST: (
            "insert into gate.active_revision values (true, 'x', 1)",
            "update brain.lexicon_partial set df = 0",
            "delete from brain.unit",
            "update brain.unit_revision set body = 'x'",
            "update gate.unit_class set retired = false",
            "select from gate.security_event",
        ),
        INDEX: (
            "update brain.unit set class_id = 0",
            "select from gate.consent",
            "update brain.outbox set unit_id = gen_random_uuid()",
            "select from brain.thread",
        ),
        POLICY: (
            "select from brain.unit",
            "update gate.unit_class set retired = true",
            "delete from gate.audience_filter_policy",
            "insert into gate.profile_role values ('x', 'x', 'x')",
            "delete from gate.consent",
            "update gate.policy_release set files = '{}'",
            "delete from gate.policy_release",
            "update gate.replica set digest = 'x'",
        ),
        JOURNAL: (
            "select from gate.security_event",
            "delete from gate.security_event",
            "update gate.security_event set severity = 'warning'",
            "select from brain.unit",
            "select from gate.admin_access",
            "delete from gate.admin_access",
        ),
        SEAL: (
            "insert into gate.security_event (id) values (gen_random_uuid())",
            "delete from gate.security_event_seal",
            "select from brain.unit",
        ),
        WATCH: (
            "update gate.policy_release set state = 'active'",
            "insert into gate.active_revision values (true, 'x', 1)",
            "select from gate.profile_grant",
            "select from brain.unit",
        ),
    }
    attempts[LIVE] = (
        "select id from brain.unit",
        "select tenant from brain.unit",
        "select canonical_address from brain.thread",
        "select from brain.unit_revision",
        "update brain.unit set class_id = 0",
        "insert into gate.admin_access (id) values (gen_random_uuid())",
    )
    attempts[LABEL] = (
        "select from brain.unit",
        "select from brain.labelled",
        "select from gate.label_change",
        "update gate.label_change set state = 'approved'",
        "insert into gate.security_event (id) values (gen_random_uuid())",
        "select from gate.profile_grant",
    )
    for role, statements in attempts.items():
        with world.login(role) as connection:
            for statement in statements:
                assert refused(connection, statement), (role, statement)
    with world.login(INDEX) as connection:
        connection.execute("update brain.outbox set done_at = now() where unit_id = %s", [unit])
        connection.execute("select id, title from brain.unit")


def test_the_journal_cannot_be_rewritten_even_by_the_superuser(world: World) -> None:
    """Append-only by trigger, beside the grants; the chain of seals stands behind it."""
    with world.login(JOURNAL) as connection:
        connection.execute(
            "insert into gate.consumer_contract_log (kind, request_id) values ('violation', 'r')"
        )
    for statement in ("update {} set request_id = 'x'", "delete from {}", "truncate {} cascade"):
        for table in ("gate.consumer_contract_log", "gate.security_event", "gate.admin_access"):
            with pytest.raises(errors.InsufficientPrivilege, match="only grows"):
                world.as_superuser(statement.format(table))
