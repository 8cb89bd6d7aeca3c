"""Our schemas in somebody else's database: beside foreign tables and roles, touching none of them.

Provenance: issue 5, "What to build" 6: two schemas after the seed's two layers, placeable in an
existing database such as one that Directus manages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from policies.snapshot import Snapshot
from retrieval.ingest import run
from retrieval.ingest.identity import unit_id
from retrieval.schema.migrate import migrate
from retrieval.schema.placement import missing
from retrieval.stores.activation import activate
from retrieval.stores.enforcement import assert_enforced
from retrieval.stores.roles import INGEST, POLICY, STATIONS, dsn_for
from tests.retrieval.database.world import World
from tests.retrieval.ingest.bench import Bench, unit
from tests.services import Cluster, Database, fresh_database

OURS = "('brain', 'gate', 'migration')"
FOREIGN_STATE = f"""
    select 'schema', n.nspname, n.nspowner::regrole::text, n.nspacl::text
    from pg_namespace n where n.nspname not in {OURS} and n.nspname !~ '^pg_(toast_)?temp'
    union all
    select 'relation', c.oid::regclass::text, c.relowner::regrole::text,
           concat_ws('|', c.relacl::text, c.relrowsecurity, c.reltuples < 0, c.relhastriggers)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('public', 'accounting')
    union all
    select 'function', p.oid::regprocedure::text, p.proowner::regrole::text, p.proacl::text
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname in ('public', 'accounting')
    union all
    select 'extension', e.extname, e.extowner::regrole::text, '' from pg_extension e
    union all
    select 'setting', coalesce(s.setrole::regrole::text, ''), s.setconfig::text, ''
    from pg_db_role_setting s where s.setdatabase <> 0
    union all
    select 'defaults', d.defaclrole::regrole::text, d.defaclobjtype::text, d.defaclacl::text
    from pg_default_acl d
    union all
    select 'role', r.rolname, concat_ws('|', r.rolsuper, r.rolcreaterole, r.rolcanlogin), ''
    from pg_roles r where r.rolname like 'test\\_kb\\_%'
    order by 1, 2, 3, 4"""
LAYOUT = """
    create table public.directus_users (id uuid primary key, email text, token text);
    create table public.directus_permissions (id serial primary key, collection text);
    create table public.unit (id integer primary key, title text);
    create table public.thread (id integer primary key);
    insert into public.unit values (1, 'theirs');
    create schema accounting;
    create table accounting.gate (id integer primary key);
    create function public.class_of(text) returns integer language sql as 'select 1';
    create function public.note() returns trigger language plpgsql as $$ begin return new; end $$;
    create trigger note before insert on public.unit for each row execute function public.note();
    alter default privileges in schema public grant select on tables to test_kb_api;
"""
ROLES = ("test_kb_owner", "test_kb_api", "test_kb_admin")


@dataclass(frozen=True, slots=True)
class Existing:
    """A database that others use. ``admin`` is ours: a plain login, owner of nothing here."""

    database: Database
    admin: str

    def ask(self, statement: str, dsn: str = "") -> list[tuple[object, ...]]:
        with psycopg.connect(dsn or self.database.url) as connection:
            return connection.execute(statement.encode()).fetchall()

    def change(self, statement: str, dsn: str = "") -> None:
        with psycopg.connect(dsn or self.database.url) as connection:
            connection.execute(statement.encode())


@pytest.fixture
def existing(cluster: Cluster, migrated_template: Database) -> Iterator[Existing]:
    """``migrated_template``: the cluster has our roles already, made by somebody else."""
    with (
        fresh_database(cluster) as database,
        psycopg.connect(database.url, autocommit=True) as root,
    ):
        try:
            for role in ROLES:
                root.execute(f"create role {role} login password 'plain'".encode())
            name = sql.Identifier(database.name)
            root.execute(sql.SQL("alter database {} owner to test_kb_owner").format(name))
            root.execute(
                sql.SQL("alter database {} set search_path = accounting, public").format(name)
            )
            admin = make_conninfo(database.url, user="test_kb_admin", password="plain")
            made = Existing(database, admin)
            made.change("grant all on schema public to test_kb_owner")
            made.change(LAYOUT, make_conninfo(database.url, user="test_kb_owner", password="plain"))
            yield made
        finally:
            root.execute(
                sql.SQL("alter database {} owner to postgres").format(sql.Identifier(database.name))
            )
            for role in ROLES:
                root.execute(f"drop owned by {role} cascade; drop role {role}".encode())


def prepared(existing: Existing) -> None:
    """What the owner of the database, or its server's administrator, gives our login."""
    existing.change("alter role test_kb_admin createrole")
    with psycopg.connect(existing.database.url, autocommit=True) as root:
        root.execute(
            sql.SQL("grant create on database {} to test_kb_admin with grant option").format(
                sql.Identifier(existing.database.name)
            )
        )
        for (role,) in root.execute(
            "select rolname from pg_roles where rolname like 'gw\\_%'"
        ).fetchall():
            root.execute(
                sql.SQL("grant {} to test_kb_admin with admin option").format(sql.Identifier(role))
            )


def test_what_is_missing_is_said_before_anything_is_written(existing: Existing) -> None:
    before = existing.ask(FOREIGN_STATE)
    assert [one.code for one in missing(existing.admin)] == [
        "no_createrole", "no_create", "roles_foreign",
    ]  # fmt: skip
    existing.change("create schema brain; create schema migration authorization test_kb_owner")
    found = missing(existing.admin)
    assert [one.code for one in found] == [
        "no_createrole", "no_create", "schema_taken", "schema_taken", "roles_foreign",
    ]  # fmt: skip
    assert "`brain`" in found[2].reason
    existing.change("drop schema brain; drop schema migration")
    assert existing.ask(FOREIGN_STATE) == before
    prepared(existing)
    assert missing(existing.admin) == ()


def test_migrations_run_beside_foreign_schemas_and_touch_nothing(
    existing: Existing, snapshot: Snapshot
) -> None:
    """By a login that is no superuser and owns nothing here, under another search path."""
    prepared(existing)
    before = existing.ask(FOREIGN_STATE)
    assert migrate(existing.admin, existing.database.secret, snapshot).files
    assert existing.ask(FOREIGN_STATE) == before
    made = existing.ask(
        "select distinct n.nspname::text from pg_class c join pg_namespace n on n.oid ="
        " c.relnamespace where c.relowner = 'gw_owner'::regrole and n.nspname !~ '^pg_' order by 1"
    )
    assert made == [("brain",), ("gate",), ("migration",)]
    assert missing(existing.admin) == ()
    assert migrate(existing.admin, existing.database.secret, snapshot).files == ()


def test_it_works_there_like_in_a_database_of_its_own(
    existing: Existing, snapshot: Snapshot, tmp_path: Path
) -> None:
    """Ingest, activation and enforcement; the foreign `unit` beside ours is nobody's mistake."""
    prepared(existing)
    migrate(existing.admin, existing.database.secret, snapshot)
    database = existing.database
    with psycopg.connect(
        dsn_for(POLICY, database.url, database.secret), autocommit=True
    ) as connection:
        activate(connection, snapshot)
    assert_enforced(existing.admin, snapshot)
    bench = Bench(tmp_path, database, snapshot)
    report = run(
        bench.write([unit("a/1")]),
        bench.native,
        dsn=dsn_for(INGEST, database.url, database.secret),
    )
    assert not report.reasons
    world = World(database, snapshot)
    assert world.ask("select id from brain.unit where class_id >= 0") == [(unit_id("a/1"),)]
    assert world.ask("select * from public.unit") == [(1, "theirs")]


def test_neither_side_reads_the_other(existing: Existing, snapshot: Snapshot) -> None:
    """Their roles see nothing of ours, and our logins nothing of theirs."""
    prepared(existing)
    migrate(existing.admin, existing.database.secret, snapshot)
    for role in ("test_kb_owner", "test_kb_api"):
        dsn = make_conninfo(existing.database.url, user=role, password="plain")
        for table in ("brain.unit", "gate.consent", "migration.applied"):
            with pytest.raises(errors.InsufficientPrivilege):
                existing.ask(f"select * from {table}", dsn)
    for station in STATIONS:
        dsn = dsn_for(station, existing.database.url, existing.database.secret)
        for table in ("public.directus_users", "public.unit", "accounting.gate"):
            with pytest.raises(errors.InsufficientPrivilege):
                existing.ask(f"select * from {table}", dsn)
