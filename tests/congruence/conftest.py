"""The world of every state, written once for the tests that compare enforcement points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.snapshot import Snapshot
from tests.congruence.states import State, every_state, fill
from tests.retrieval.database.world import World, world_in
from tests.services import Cluster, Database, fresh_database


@pytest.fixture(scope="session")
def states(snapshot: Snapshot) -> list[State]:
    return every_state(snapshot)


@pytest.fixture(scope="session")
def full(
    cluster: Cluster, migrated_template: Database, snapshot: Snapshot, states: list[State]
) -> Iterator[World]:
    """A world with one unit in every state, and consents for some of them. Read only."""
    with fresh_database(cluster, template=migrated_template.name) as database:
        world = world_in(database, snapshot)
        fill(world, states)
        yield world
