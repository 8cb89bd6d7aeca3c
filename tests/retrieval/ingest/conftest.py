"""Fixtures of the ingest tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.snapshot import Snapshot
from tests.retrieval.ingest.bench import Bench
from tests.services import Database


@pytest.fixture
def bench(tmp_path: Path, database: Database, snapshot: Snapshot) -> Bench:
    """A folder and a migrated database of this test's own."""
    return Bench(tmp_path, database, snapshot)
