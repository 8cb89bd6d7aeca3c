"""The runner refuses history that was changed, and the registry only grows."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from policies.snapshot import Snapshot
from policies.vocabulary import Vocabulary
from retrieval.schema import history
from retrieval.schema.history import MigrationRefused, Step, apply_steps, only_one, steps
from retrieval.schema.migrate import migrate, roles_of
from retrieval.stores.roles import OWNER, dsn_for, password_of, serving_login
from tests.retrieval.database.world import OPEN, World
from tests.services import Database

FIRST = Step(1, "0001_first.sql", "create table migration.first (x integer)")
SECOND = Step(2, "0002_second.sql", "create table migration.second (x integer)")


@dataclass(frozen=True)
class Words:
    """A snapshot as far as migrating is concerned."""

    vocabulary: Vocabulary


def run(database: Database, *todo: Step) -> tuple[str, ...]:
    with psycopg.connect(database.url, autocommit=True) as connection, only_one(connection):
        return apply_steps(connection, todo, owner=OWNER)


@pytest.fixture
def blank(empty_database: Database, migrated_template: Database) -> Database:
    """An empty database in a cluster that already has the roles."""
    with psycopg.connect(empty_database.url, autocommit=True) as admin:
        admin.execute(
            sql.SQL("grant create on database {} to {}").format(
                sql.Identifier(empty_database.name), sql.Identifier(OWNER)
            )
        )
    return empty_database


def test_files_are_applied_once_and_in_order(blank: Database) -> None:
    assert run(blank, FIRST) == ("0001_first.sql",)
    assert run(blank, FIRST, SECOND) == ("0002_second.sql",)
    assert run(blank, FIRST, SECOND) == ()


def test_edited_missing_and_backdated_history_is_refused(blank: Database) -> None:
    """Each with what to do about it; nothing is applied."""
    run(blank, FIRST, SECOND)
    with pytest.raises(MigrationRefused, match=r"0002_second\.sql` was edited"):
        run(blank, FIRST, replace(SECOND, text=SECOND.text + " "))
    with pytest.raises(MigrationRefused, match="does not know"):
        run(blank, FIRST)
    third = Step(3, "0003_third.sql", "select 1")
    run(blank, FIRST, SECOND, third)
    with psycopg.connect(blank.url, autocommit=True) as connection:
        connection.execute("delete from migration.applied where number = 2")
    with pytest.raises(MigrationRefused, match="numbered before"):
        run(blank, FIRST, SECOND, third)


def test_a_file_that_fails_leaves_nothing_behind(blank: Database) -> None:
    """One transaction with its row in the history."""
    broken = replace(SECOND, text=SECOND.text + "; select 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        run(blank, FIRST, broken)
    assert run(blank, FIRST, SECOND) == ("0002_second.sql",)


def test_a_lock_that_cannot_be_had_is_tried_again_and_then_said(
    blank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDL never queues in front of readers: it gives up, and the next attempt succeeds."""
    monkeypatch.setattr(history, "_LOCK_TIMEOUT", "20ms")
    monkeypatch.setattr(history, "_ATTEMPTS", 2)
    monkeypatch.setattr(history, "_PAUSE_S", 0.01)
    run(blank, FIRST)
    alter = Step(2, "0002_second.sql", "alter table migration.first add y integer")
    with psycopg.connect(blank.url) as holding:
        holding.execute("select from migration.first")
        with pytest.raises(MigrationRefused, match="end long transactions"):
            run(blank, FIRST, alter)
    assert run(blank, FIRST, alter) == ("0002_second.sql",)


def test_names_and_numbers_of_files_are_checked(tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text("select 1")
    (tmp_path / "0001_twin.sql").write_text("select 1")
    with pytest.raises(MigrationRefused, match="share a number"):
        steps(tmp_path)
    (tmp_path / "0001_twin.sql").rename(tmp_path / "second.sql")
    with pytest.raises(MigrationRefused, match="is not named like"):
        steps(tmp_path)


def test_two_runners_at_once_make_one_schema(empty_database: Database, snapshot: Snapshot) -> None:
    """The second waits for the first and finds nothing to do."""
    results: list[Any] = []

    def go() -> None:
        results.append(migrate(empty_database.url, empty_database.secret, snapshot))

    runners = [threading.Thread(target=go) for _ in range(2)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(60)
    assert sorted(bool(result.files) for result in results) == [False, True]
    assert sorted(result.classes_added for result in results) == [
        0,
        snapshot.vocabulary.class_count,
    ]


def test_the_owner_needs_no_superuser(
    empty_database: Database, migrated_template: Database, snapshot: Snapshot
) -> None:
    """A managed server gives an administrator who may create roles and owns the database."""
    with psycopg.connect(empty_database.url, autocommit=True) as admin:
        admin.execute("drop role if exists test_plain_admin")
        admin.execute("create role test_plain_admin login createrole password 'plain'")
        try:
            admin.execute(
                sql.SQL("alter database {} owner to test_plain_admin").format(
                    sql.Identifier(empty_database.name)
                )
            )
            # the roles of this cluster were made by another administrator
            for (role,) in admin.execute(
                "select rolname from pg_roles where rolname like 'gw\\_%'"
            ).fetchall():
                admin.execute(
                    sql.SQL("grant {} to test_plain_admin with admin option").format(
                        sql.Identifier(role)
                    )
                )
            plain = psycopg.conninfo.make_conninfo(
                empty_database.url, user="test_plain_admin", password="plain"
            )
            assert migrate(plain, empty_database.secret, snapshot).files
        finally:
            admin.execute(
                sql.SQL("alter database {} owner to postgres").format(
                    sql.Identifier(empty_database.name)
                )
            )
            admin.execute("drop owned by test_plain_admin")
            admin.execute("drop role test_plain_admin")


def appended(vocabulary: Vocabulary, facet: str, word: str) -> Vocabulary:
    facets = {**vocabulary.facets, facet: (*vocabulary.facets[facet], word)}
    return replace(vocabulary, facets=facets, generations=(*vocabulary.generations, facets))


def test_appending_a_word_adds_classes_and_changes_no_stored_one(world: World) -> None:
    """Stored ids and words stay; units that waited for the word get their class."""
    known, waiting = world.unit(OPEN), world.unit((*OPEN[:5], "novel"))
    before = world.ask("select * from gate.unit_class order by class_id")
    vocabulary = appended(world.snapshot.vocabulary, "kind", "novel")
    done = migrate(world.database.url, world.database.secret, Words(vocabulary))
    assert done.classes_added == vocabulary.class_count - world.snapshot.vocabulary.class_count
    assert world.ask("select * from gate.unit_class order by class_id")[: len(before)] == before
    assert world.class_of(known) == world.class_id(OPEN)
    assert world.class_of(waiting) >= len(before)
    assert world.one("select count(*) from brain.quarantine where resolved_at is null") == 0


def test_retiring_a_word_closes_what_uses_it(world: World) -> None:
    """The classes stay in the registry; labels with the word have class -1 from then on."""
    unit, other = world.unit(OPEN), world.unit((*OPEN[:5], "guide"))
    vocabulary = world.snapshot.vocabulary
    retired = replace(vocabulary, retired={**vocabulary.retired, "kind": frozenset({"faq"})})
    migrate(world.database.url, world.database.secret, Words(retired))
    assert (world.class_of(unit), world.class_of(other)) == (
        -1,
        world.class_id((*OPEN[:5], "guide")),
    )
    assert world.ask("select reason from brain.quarantine where resolved_at is null") == [
        ("retired_word",)
    ]
    migrate(world.database.url, world.database.secret, Words(vocabulary))
    assert world.class_of(unit) == world.class_id(OPEN)


def test_a_lock_that_gives_an_old_id_new_words_is_refused(world: World) -> None:
    """Ids are never reused: two swapped words would relabel everything that is stored."""
    vocabulary = world.snapshot.vocabulary
    kinds = vocabulary.facets["kind"]
    facets = {**vocabulary.facets, "kind": (kinds[1], kinds[0], *kinds[2:])}
    swapped = replace(vocabulary, facets=facets, generations=(facets,))
    before = world.ask("select * from gate.unit_class order by class_id")
    with pytest.raises(MigrationRefused, match="ids are never reused"):
        migrate(world.database.url, world.database.secret, Words(swapped))
    assert world.ask("select * from gate.unit_class order by class_id") == before


def test_profiles_that_would_share_a_role_are_refused() -> None:
    with pytest.raises(MigrationRefused, match="share the database role"):
        roles_of({"agent:a_b": "agent", "agent_a:b": "agent"})


def test_passwords_follow_the_secret_alone(world: World) -> None:
    """Derived, different for every role, and of no use with another secret."""
    role = serving_login("customer")
    assert password_of(role, "a") != password_of(role, "b")
    assert password_of(role, "a") != password_of(serving_login("partner"), "a")
    with pytest.raises(ValueError, match="empty"):
        password_of(role, "")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn_for(role, world.database.url, "another secret"))


def test_what_was_stored_before_sources_had_names_is_nobodys(
    empty_database: Database, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No column tells reliably who brought it; every source has to claim it (0040)."""
    earlier = tuple(step for step in steps() if step.number < 40)
    with monkeypatch.context() as before:
        before.setattr("retrieval.schema.migrate.steps", lambda: earlier)
        before.setattr("retrieval.schema.migrate._make_partitions", lambda _: None)
        migrate(empty_database.url, empty_database.secret, snapshot)
    old = World(empty_database, snapshot)
    unit = old.unit(thread=old.thread())
    assert migrate(empty_database.url, empty_database.secret, snapshot).files
    for table in ("unit", "thread"):
        assert old.ask(f"select origin from brain.{table}") == [("unclaimed",)]
    assert old.class_of(unit) == old.class_id(OPEN)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="another source"):
        old.run("update brain.unit set title = 'x'")
