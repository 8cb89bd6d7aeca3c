"""The worlds of these tests: a migrated database with the default policy active."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.snapshot import Snapshot
from tests.retrieval.database.world import World, world_in
from tests.services import Cluster, Database, fresh_database


@pytest.fixture
def world(database: Database, snapshot: Snapshot) -> World:
    """A world of this test's own: for what counts everything, or changes more than content."""
    return world_in(database, snapshot)


@pytest.fixture(scope="module")
def common(cluster: Cluster, migrated_template: Database, snapshot: Snapshot) -> Iterator[World]:
    """A world that a module's tests share, each with objects of its own."""
    with fresh_database(cluster, template=migrated_template.name) as database:
        yield world_in(database, snapshot)
