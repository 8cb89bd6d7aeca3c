"""At start everything that was weakened by hand is named, and nothing is served."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from retrieval.schema.migrate import migrate
from retrieval.stores.enforcement import NotEnforced, assert_enforced
from retrieval.stores.roles import GUARD
from tests.retrieval.database.world import World
from tests.services import Database

WEAKENED = (
    ("alter table brain.thread no force row level security", "not forced on `brain.thread`"),
    ("alter table brain.unit disable row level security", "not forced on `brain.unit`"),
    ("drop policy reader on brain.edge", "policy reader on brain.edge is gone"),
    (
        "create policy more on brain.unit for select using (true)",
        "policy more on brain.unit was added",
    ),
    (
        "alter policy reader on brain.label using (true)",
        "policy reader on brain.label was changed",
    ),
    ("grant select on brain.unit to gw_guard", "brain.unit (rights) was changed"),
    ("grant select on gate.consent to public", "gate.consent (rights) was changed"),
    (
        "alter table brain.unit disable trigger class_from_label",
        "trigger class_from_label on brain.unit was changed",
    ),
    (
        "create or replace function gate.consented_objects() returns setof uuid language sql"
        " as 'select id from brain.unit'",
        "function gate.consented_objects() was changed",
    ),
    ("alter table brain.unit owner to postgres", "`brain.unit` belongs to `postgres`"),
)


def reasons(world: World) -> str:
    with pytest.raises(NotEnforced) as caught:
        assert_enforced(world.database.url, world.snapshot)
    return str(caught.value)


def test_a_fresh_database_is_enforced_whoever_asks(world: World) -> None:
    assert_enforced(world.database.url, world.snapshot)
    assert_enforced(world.dsn(GUARD), world.snapshot)
    other_path = psycopg.conninfo.make_conninfo(
        world.database.url, options="-c search_path=brain,gate"
    )
    assert_enforced(other_path, world.snapshot)


def test_every_weakening_is_named_and_a_migration_does_not_bless_it(world: World) -> None:
    """All at once, in words; running the migrations again changes nothing about it."""
    for statement, _ in WEAKENED:
        world.as_superuser(statement)
    migrate(world.database.url, world.database.secret, world.snapshot)
    said = reasons(world)
    assert [words for _, words in WEAKENED if words not in said] == []


@pytest.fixture
def undo(world: World) -> Iterator[list[str]]:
    """Roles belong to the whole cluster: what a test does to them is undone."""
    statements: list[str] = []
    yield statements
    for statement in statements:
        world.as_superuser(statement)


def test_roles_that_can_do_more_are_named(world: World, undo: list[str]) -> None:
    undo += [
        "alter role gw_guard nobypassrls",
        "revoke gw_p_employee from gw_serve_customer",
        "revoke pg_read_all_data from gw_ingest",
        "alter role gw_serve_partner noinherit",
    ]
    for statement in (
        "alter role gw_guard bypassrls",
        "grant gw_p_employee to gw_serve_customer",
        "grant pg_read_all_data to gw_ingest",
        "alter role gw_serve_partner inherit",
    ):
        world.as_superuser(statement)
    said = reasons(world)
    for words in (
        "role `gw_guard` may do more",
        "`gw_serve_customer` can become `gw_p_employee`",
        "`gw_ingest` can become `pg_read_all_data`",
        "login `gw_serve_partner` inherits",
    ):
        assert words in said


def test_a_database_without_the_schema_is_not_served_from(
    empty_database: Database, world: World
) -> None:
    with pytest.raises(NotEnforced, match="migrate it"):
        assert_enforced(empty_database.url, world.snapshot)
    with psycopg.connect(empty_database.url) as connection:
        assert connection.execute("select to_regnamespace('migration')").fetchone() == (None,)
