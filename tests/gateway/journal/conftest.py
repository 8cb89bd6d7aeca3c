"""A migrated database of its own for every test of the journal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.snapshot import load
from retrieval.schema.migrate import migrate
from tests.services import Cluster, Database, fresh_database


@pytest.fixture(scope="session")
def journal_template(cluster: Cluster) -> Iterator[Database]:
    """A migrated database that nobody writes to: the others are copies of it."""
    with fresh_database(cluster) as database:
        migrate(database.url, database.secret, load())
        yield database


@pytest.fixture
def database(cluster: Cluster, journal_template: Database) -> Iterator[Database]:
    with fresh_database(cluster, template=journal_template.name) as database:
        yield database
