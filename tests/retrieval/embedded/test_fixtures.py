"""The databases that tests get are what they say."""

from __future__ import annotations

import psycopg

from tests.services import Database


def test_a_migrated_database_has_the_schema_and_no_content(database: Database) -> None:
    """A copy of the template: classes are there, units are not."""
    with psycopg.connect(database.url) as connection:
        classes = connection.execute("select count(*) from gate.unit_class").fetchone()
        units = connection.execute("select count(*) from brain.unit").fetchone()
    assert classes == (10_800,)
    assert units == (0,)


def test_an_empty_database_has_no_schema(empty_database: Database) -> None:
    """For the migrator's own tests."""
    with psycopg.connect(empty_database.url) as connection:
        found = connection.execute("select to_regclass('brain.unit')").fetchone()
    assert found == (None,)
