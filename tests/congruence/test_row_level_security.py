"""Row-level security, the bound predicate and `Scope.permits` give one answer.

Mandated by promise G1: every class (unclassed too), every profile, consent value and
compartment case (own, other, shared), on the real engine. No two of the three share a path:
the first reads masks by the database role, the second bound lists, the third Python sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest

from policies.decision import Scope
from policies.emit.postgres import predicate
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS
from retrieval.stores.roles import profile_role, serving_login
from tests.congruence.states import CALLERS, PURPOSE, SUBJECT, WHERE, State, consented
from tests.retrieval.database.world import World, world_in
from tests.services import Database


@contextmanager
def as_reader(
    world: World, profile: str, tenants: Sequence[str], jurisdictions: Sequence[str], purpose: str
) -> Iterator[psycopg.Connection[Any]]:
    """A transaction with the role and settings that a request makes, written out again here."""
    audience = world.snapshot.vocabulary.profiles[profile]
    with world.login(serving_login(audience)) as connection, connection.transaction():
        connection.execute(
            "select set_config('role', %s, true), set_config('gw.subject', %s, true),"
            " set_config('gw.purpose', %s, true),"
            " set_config('gw.tenants', %s::text[]::text, true),"
            " set_config('gw.jurisdictions', %s::text[]::text, true)",
            [profile_role(profile), SUBJECT, purpose, list(tenants), list(jurisdictions)],
        )
        yield connection


NUMBERS = "select array_agg(('x' || right(u.id::text, 8))::bit(32)::integer) from brain.unit u"


def numbers(
    connection: psycopg.Connection[Any], query: str, params: Mapping[str, Any] | None = None
) -> set[int]:
    row = connection.execute(query.encode(), params).fetchone()
    assert row is not None
    return set(row[0] or ())


def test_the_three_layers_agree_on_every_state(full: World, states: list[State]) -> None:
    """97,209 states x 8 profiles x compartments x consent, cell by cell (G1)."""
    compared = visible = 0
    with psycopg.connect(full.database.url) as owner:
        for profile in full.snapshot.vocabulary.profiles:
            for (tenants, jurisdictions), purpose in product(CALLERS, ("", PURPOSE)):
                scope = Scope(
                    full.snapshot.grant([profile]),
                    tenants,
                    jurisdictions,
                    consented(states, purpose),
                )
                permitted = {
                    s.number
                    for s in states
                    if scope.permits(
                        unit_id=s.id,
                        class_id=s.class_id,
                        tenant=s.tenant,
                        jurisdiction=s.jurisdiction,
                    )
                }
                bound = predicate(scope, "u")
                assert numbers(owner, f"{NUMBERS} where {bound.sql}", bound.params) == permitted
                with as_reader(full, profile, tenants, jurisdictions, purpose) as reader:
                    assert numbers(reader, NUMBERS) == permitted
                compared += len(states)
                visible += len(permitted)
    assert compared == len(states) * len(full.snapshot.vocabulary.profiles) * 6
    assert 0 < visible < compared


def test_unclassed_units_are_visible_to_nobody(full: World, states: list[State]) -> None:
    """Class -1 is in no list; nor does it break the scan (get_bit would raise on it)."""
    unclassed = {s.number for s in states if s.class_id == -1}
    for profile in full.snapshot.vocabulary.profiles:
        with as_reader(full, profile, ["own"], ["own"], PURPOSE) as reader:
            assert not numbers(reader, NUMBERS) & unclassed


def test_a_consent_of_another_subject_or_purpose_opens_nothing(
    full: World, states: list[State]
) -> None:
    """Consents are read live for the two settings, by equality; an empty one selects none."""
    for setting in ("gw.subject", "gw.purpose"):
        for value in ("", "somebody else"):
            with as_reader(full, "agent:auditor", ["own"], ["own"], PURPOSE) as reader:
                reader.execute("select set_config(%s, %s, true)", [setting, value])
                found = numbers(reader, NUMBERS)
            with as_reader(full, "agent:auditor", ["own"], ["own"], "") as reader:
                assert found == numbers(reader, NUMBERS)


@pytest.mark.parametrize(
    "table", ["brain.thread", "brain.label", "brain.expected_artifact", "brain.thread_term"]
)
def test_other_governed_tables_agree_with_the_scope(
    database: Database, snapshot: Snapshot, table: str
) -> None:
    """Threads, labels, artifacts and postings: one row per sampled state, through the triggers."""
    world = world_in(database, snapshot)
    classes = list(range(0, snapshot.vocabulary.class_count, 97))
    keys = list(product(classes, WHERE, WHERE))
    with psycopg.connect(database.url) as admin:
        admin.execute("create temporary table wanted (id uuid, class_id int, t text, j text)")
        admin.execute(
            "insert into wanted"
            " select * from unnest(%s::uuid[], %s::int[], %s::text[], %s::text[])",
            [
                [UUID(int=n) for n in range(1, len(keys) + 1)],
                [key[0] for key in keys],
                [key[1] for key in keys],
                [key[2] for key in keys],
            ],
        )
        for statement in FILL[table]:
            admin.execute(statement)
    ids = KEY[table]
    with psycopg.connect(database.url) as owner:
        stored = owner.execute(
            f"select {ids}, class_id, tenant, jurisdiction from {table}".encode()
        ).fetchall()
    assert {row[1:] for row in stored} >= set(keys)
    for profile in snapshot.vocabulary.profiles:
        scope = Scope(snapshot.grant([profile]), ("own",), ("own",), ())
        wanted = {
            row[0]
            for row in stored
            if scope.permits(unit_id=row[0], class_id=row[1], tenant=row[2], jurisdiction=row[3])
        }
        with as_reader(world, profile, ["own"], ["own"], "") as reader:
            seen = {row[0] for row in reader.execute(f"select {ids} from {table}".encode())}
        assert seen == wanted


_WORDS = ", ".join(FACETS)
_FROM = "from wanted w join gate.unit_class c using (class_id)"
_THREADS = (
    f"insert into brain.thread (id, canonical_address, title, {_WORDS}, tenant, jurisdiction)"
    f" select w.id, w.id::text, 't', {_WORDS}, w.t, w.j {_FROM}"
)
_OPEN_THREAD = (
    f"insert into brain.thread (id, canonical_address, title, {_WORDS}, tenant, jurisdiction)"
    " values (gen_random_uuid(), 'open', 't', 'public', 'published', 'published', 'low',"
    " 'enacted', 'thread', '*', '*')"
)
FILL = {
    "brain.thread": [_THREADS],
    "brain.label": [
        f"insert into brain.label (id, term, {_WORDS}, tenant, jurisdiction)"
        f" select w.id, w.id::text, {_WORDS}, w.t, w.j {_FROM}"
    ],
    "brain.expected_artifact": [
        _OPEN_THREAD,
        "insert into brain.expected_artifact (id, thread_id, title, lifecycle_stage,"
        f" {_WORDS}, tenant, jurisdiction) select w.id, (select id from brain.thread),"
        f" w.id::text, 'report', {_WORDS}, w.t, w.j {_FROM}",
    ],
    "brain.thread_term": [
        _THREADS,
        "insert into brain.thread_term (term, thread_id, weight) select 1, id, 1 from brain.thread",
    ],
}
KEY = {
    "brain.thread": "id",
    "brain.label": "id",
    "brain.expected_artifact": "id",
    "brain.thread_term": "thread_id",
}
