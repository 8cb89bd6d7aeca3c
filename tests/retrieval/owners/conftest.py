"""A database with one source's units, and its owner at work."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.stores.activation import activate
from retrieval.stores.roles import POLICY, dsn_for
from tests.retrieval.owners.desk import Desk
from tests.services import Database


@pytest.fixture
def desk(tmp_path: Path, database: Database, snapshot: Snapshot) -> Desk:
    """Two units of ``ours``, one of ``theirs``, and the default policy in force."""
    with psycopg.connect(
        dsn_for(POLICY, database.url, database.secret), autocommit=True
    ) as connection:
        activate(connection, snapshot)
    made = Desk(tmp_path, database, snapshot)
    made.fill()
    return made
