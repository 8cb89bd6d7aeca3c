"""Brings a database to this version: roles, schema, words and classes.

Laws
    * Everything is idempotent; a second run changes nothing.
    * The class registry only grows: an id whose words would change refuses to start.
    * Roles belong to the cluster, not to the database: nothing here takes a role away that
      another database of the cluster may use, except a profile from a wrong audience.
    * No role gets an attribute: all are made plain (no superuser, no bypass of row security).

``admin_dsn`` must be able to create roles and own the database; a superuser is not needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import psycopg
from psycopg import errors, sql

from policies.vocabulary import FACETS, Vocabulary
from retrieval.schema.history import MigrationRefused, apply_steps, only_one, steps
from retrieval.schema.seal import is_sealed, seal
from retrieval.signals.settings import MONTHS_AHEAD
from retrieval.stores.roles import (
    OWNER,
    READER,
    STATIONS,
    password_of,
    profile_role,
    serving_login,
)

_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.05
_FOR_EVER: Final = 1_200
"""Months. Dropping old partitions is the signal worker's."""


class HasVocabulary(Protocol):
    """All that migrating needs of a policy snapshot."""

    @property
    def vocabulary(self) -> Vocabulary: ...


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a run did: files applied, classes added, whether stored labels were computed anew."""

    files: tuple[str, ...]
    classes_added: int
    relabelled: bool


def migrate(admin_dsn: str, secret: str, snapshot: HasVocabulary) -> Migrated:
    """The database at ``admin_dsn``, brought to this schema and vocabulary.

    Cost: about 0.5 s on an empty database, 0.1 s when there is nothing to do.
    Raises MigrationRefused (edited history, changed class id, two profiles with one role name)
    and psycopg.Error when the server cannot be reached.
    """
    vocabulary = snapshot.vocabulary
    roles = roles_of(vocabulary.profiles)
    with psycopg.connect(admin_dsn, autocommit=True) as connection, only_one(connection):
        _make_roles(connection, secret, vocabulary)
        files = apply_steps(connection, steps(), owner=OWNER)
        with connection.transaction():
            connection.execute(sql.SQL("set local role {}").format(sql.Identifier(OWNER)))
            added = _add_classes(connection, vocabulary)
            changed = _write_words(connection, vocabulary)
            _write_profiles(connection, vocabulary.profiles, roles)
            relabelled = added > 0 or changed
            if relabelled:
                connection.execute("select brain.relabel_all()")
            _make_partitions(connection)
            if files or not is_sealed(connection):
                seal(connection)
    return Migrated(files=files, classes_added=added, relabelled=relabelled)


def _make_partitions(connection: psycopg.Connection[Any]) -> None:
    """A gateway whose signal worker is down writes for months before it must be up."""
    connection.execute(
        "select brain.keep_partitions(%s, %s, %s)", [_FOR_EVER, _FOR_EVER, MONTHS_AHEAD]
    )


def roles_of(profiles: Mapping[str, str]) -> dict[str, str]:
    """Profile -> database role. Raises MigrationRefused when two profiles would share one."""
    roles = {profile: profile_role(profile) for profile in profiles}
    for role in roles.values():
        twins = sorted(profile for profile, other in roles.items() if other == role)
        if len(twins) > 1:
            raise MigrationRefused(
                f"profiles `{'`, `'.join(twins)}` would share the database role `{role}`;"
                " rename one of them"
            )
    return roles


# --- roles --------------------------------------------------------------------------------


def _make_roles(connection: psycopg.Connection[Any], secret: str, vocabulary: Vocabulary) -> None:
    logins = [serving_login(audience) for audience in vocabulary.audiences] + list(STATIONS)
    plain = [OWNER, READER, *(profile_role(profile) for profile in vocabulary.profiles)]
    for role in plain:
        _create(connection, role, "nologin")
    for role in logins:
        _create(connection, role, "login noinherit")
        _set_password(connection, role, password_of(role, secret))
    admin = _one(connection, "select current_user")
    if not _one(connection, "select rolsuper from pg_roles where rolname = current_user"):
        _grant(connection, OWNER, to=admin)
    for profile, audience in vocabulary.profiles.items():
        role, login = profile_role(profile), serving_login(audience)
        _grant(connection, READER, to=role)
        _grant(connection, role, to=login)
        for other in set(vocabulary.audiences) - {audience}:
            _revoke(connection, role, of=serving_login(other))
    database = _one(connection, "select current_database()")
    _patiently(
        lambda: connection.execute(
            sql.SQL("grant create on database {} to {}").format(
                sql.Identifier(database), sql.Identifier(OWNER)
            )
        )
    )


def _create(connection: psycopg.Connection[Any], role: str, attributes: str) -> None:
    def create() -> None:
        if not _one(connection, "select exists (select from pg_roles where rolname = %s)", role):
            connection.execute(sql.SQL("create role {} " + attributes).format(sql.Identifier(role)))

    _patiently(create)


def _set_password(connection: psycopg.Connection[Any], role: str, password: str) -> None:
    # Hashed here, so that the statement (and a log of statements) never holds the password.
    verifier = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    ).decode()
    _patiently(
        lambda: connection.execute(
            sql.SQL("alter role {} password {}").format(sql.Identifier(role), sql.Literal(verifier))
        )
    )


_MEMBER: Final = (
    "select exists (select from pg_auth_members"
    " where roleid = %s::regrole and member = %s::regrole)"
)


def _grant(connection: psycopg.Connection[Any], role: str, *, to: str) -> None:
    def grant() -> None:
        if not _one(connection, _MEMBER, role, to):
            connection.execute(
                sql.SQL("grant {} to {}").format(sql.Identifier(role), sql.Identifier(to))
            )

    _patiently(grant)


def _revoke(connection: psycopg.Connection[Any], role: str, *, of: str) -> None:
    def revoke() -> None:
        if _one(connection, _MEMBER, role, of):
            connection.execute(
                sql.SQL("revoke {} from {}").format(sql.Identifier(role), sql.Identifier(of))
            )

    _patiently(revoke)


def _patiently(change: Callable[[], object]) -> None:
    """Roles are shared by all databases of a cluster: two runners may meet in the catalogue."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            change()
        except (errors.DuplicateObject, errors.UniqueViolation, errors.InternalError) as met:
            # `tuple concurrently updated` has no code of its own
            if attempt == _ATTEMPTS:
                raise MigrationRefused(
                    "another program keeps changing the same roles; start again"
                ) from met
            time.sleep(_PAUSE_S)
        else:
            return


def _one(connection: psycopg.Connection[Any], query: str, *values: object) -> Any:
    row = connection.execute(query.encode(), values or None).fetchone()
    return None if row is None else row[0]


# --- words, classes, profiles -------------------------------------------------------------


def _add_classes(connection: psycopg.Connection[Any], vocabulary: Vocabulary) -> int:
    """Adds the classes that are new. An id that exists must keep its words."""
    columns = sql.SQL(", ").join(map(sql.Identifier, ("class_id", *FACETS)))
    known: dict[int, tuple[str, ...]] = {
        row[0]: row[1:]
        for row in connection.execute(sql.SQL("select {} from gate.unit_class").format(columns))
    }
    fresh = []
    for class_id, words in vocabulary.classes:
        stored = known.get(class_id)
        if stored is None:
            fresh.append((class_id, *words))
        elif stored != tuple(words):
            raise MigrationRefused(
                f"class `{class_id}` is {'/'.join(stored)} in the database and"
                f" {'/'.join(words)} in the lock; ids are never reused: restore classes.lock"
            )
    if fresh:
        # not COPY: Postgres refuses it under row-level security
        columns_of = [list(column) for column in zip(*fresh, strict=True)]
        connection.execute(
            sql.SQL(
                "insert into gate.unit_class ({}) select * from unnest(%s::smallint[],"
                " %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])"
            ).format(columns),
            columns_of,
        )
    return len(fresh)


def _write_words(connection: psycopg.Connection[Any], vocabulary: Vocabulary) -> bool:
    """Words with their order and retirement, and the classes that retirement closes."""
    rows = [
        (
            facet,
            word,
            vocabulary.orders[facet].index(word) if facet in vocabulary.orders else None,
            word in vocabulary.retired[facet],
        )
        for facet in FACETS
        for word in vocabulary.facets[facet]
    ]
    facets, words, ranks, retired = (list(column) for column in zip(*rows, strict=True))
    changed = connection.execute(
        "insert into gate.facet_word as w (facet, word, rank, retired)"
        " select * from unnest(%s::text[], %s::text[], %s::integer[], %s::boolean[])"
        " on conflict (facet, word) do update set rank = excluded.rank, retired = excluded.retired"
        " where (w.rank, w.retired) is distinct from (excluded.rank, excluded.retired)",
        [facets, words, ranks, retired],
    ).rowcount
    spent = [class_id for class_id, _ in vocabulary.classes if vocabulary.is_retired(class_id)]
    closed = connection.execute(
        "update gate.unit_class set retired = (class_id = any (%s::smallint[]))"
        " where class_id < %s and retired is distinct from (class_id = any (%s::smallint[]))",
        [spent, vocabulary.class_count, spent],
    ).rowcount
    return changed + closed > 0


def _write_profiles(
    connection: psycopg.Connection[Any], profiles: Mapping[str, str], roles: Mapping[str, str]
) -> None:
    connection.execute(
        "insert into gate.profile_role as p (profile, role, audience)"
        " select * from unnest(%s::text[], %s::name[], %s::text[])"
        " on conflict (profile) do update set role = excluded.role, audience = excluded.audience"
        " where (p.role, p.audience) is distinct from (excluded.role, excluded.audience)",
        [list(profiles), [roles[profile] for profile in profiles], list(profiles.values())],
    )
