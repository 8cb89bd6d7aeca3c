"""The world of these tests: a database of their own, migrated, with the default policy active."""

from __future__ import annotations

import pytest

from policies.snapshot import Snapshot
from tests.retrieval.database.world import World, world_in
from tests.services import Database


@pytest.fixture
def world(database: Database, snapshot: Snapshot) -> World:
    return world_in(database, snapshot)
