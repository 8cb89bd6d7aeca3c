"""A database that another version's migrations made is refused with its place and a way out."""

from __future__ import annotations

import psycopg
import pytest

from gateway.compose.database import SCHEMA_DIFFERS, policy_login
from gateway.compose.failure import CannotStart
from gateway.compose.stores import Stores
from policies.snapshot import Snapshot
from retrieval.embedded import Embedded
from tests.services import Database


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("update migration.applied set sha256 = 'x' where number = 130", "`0130_signals.sql`"),
        ("insert into migration.applied values (9999, '9999_later.sql', 'x')", "`9999`"),
        ("delete from migration.applied where number = 130", "`0130_signals.sql`"),
    ],
    ids=["edited", "newer", "between"],
)
def test_a_schema_of_another_version_is_told_apart_from_other_faults(
    services: Embedded, database: Database, snapshot: Snapshot, change: str, named: str
) -> None:
    """Code, place, reason, remedy; what only the author of a migration can do is no remedy."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(change.encode())
    stores = Stores(database.url, database.secret, services.qdrant_url, services.qdrant_api_key)
    with pytest.raises(CannotStart) as refused, policy_login(stores, snapshot):
        pass
    told = refused.value
    assert told.code == SCHEMA_DIFFERS
    assert f"database `{database.name}` at 127.0.0.1:" in told.reason
    assert named in told.reason
    assert "restore the file" not in str(told)
    assert told.remedy.startswith("start the version that made it")
    assert services.database_url.partition("@")[0].rpartition(":")[2] not in str(told)
