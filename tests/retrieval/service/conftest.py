"""The sample, written once per module; tests that change the world take their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.snapshot import Snapshot
from tests.retrieval.service.sample import SAMPLE
from tests.retrieval.stage import Prepared, prepared
from tests.services import Cluster, Database, VectorService, fresh_database


@pytest.fixture(scope="module")
def sample(
    cluster: Cluster, migrated_template: Database, sidecar: VectorService, snapshot: Snapshot
) -> Iterator[Prepared]:
    """The sample world. Never write to it."""
    with fresh_database(cluster, template=migrated_template.name) as database:
        yield prepared(database, sidecar, snapshot, SAMPLE)


@pytest.fixture
def own_sample(database: Database, sidecar: VectorService, snapshot: Snapshot) -> Prepared:
    """The sample world, for this test alone."""
    return prepared(database, sidecar, snapshot, SAMPLE)
