"""Partitions are made ahead and dropped when their time is over; the seal stays whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.schema.migrate import migrate
from retrieval.stores.enforcement import NotEnforced, assert_enforced
from retrieval.stores.roles import METRIC, dsn_for
from tests.retrieval.signals.months import older_partition
from tests.services import Database

PARTS = """
select i.inhparent::regclass::text, right(c.relname, 6)
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where c.relkind = 'r' and i.inhparent in ('brain.retrieval_metric_event'::regclass,
                                          'brain.pack_delivery'::regclass)
"""


@pytest.fixture
def keeper(database: Database) -> Iterator[psycopg.Connection[Any]]:
    login = dsn_for(METRIC, database.url, database.secret)
    with psycopg.connect(login, autocommit=True) as connection:
        yield connection


def months(database: Database) -> dict[str, set[int]]:
    """Parent -> its partitions, as months from now."""
    found: dict[str, set[int]] = {}
    with psycopg.connect(database.url) as connection:
        row = connection.execute(
            "select extract(year from n) * 12 + extract(month from n)"
            " from (select now() at time zone 'utc') t (n)"
        ).fetchone()
        assert row is not None
        for parent, month in connection.execute(PARTS):
            found.setdefault(parent, set()).add(int(month[:4]) * 12 + int(month[4:]) - int(row[0]))
    return found


def test_a_migrated_database_is_ready_for_this_month_and_three_more(database: Database) -> None:
    assert months(database) == {
        "brain.retrieval_metric_event": {0, 1, 2, 3},
        "brain.pack_delivery": {0, 1, 2, 3},
    }


def test_months_are_kept_as_long_as_told_and_each_table_for_itself(
    database: Database, keeper: psycopg.Connection[Any]
) -> None:
    for ago in (1, 2, 3, 4):
        older_partition(database, ago)
        older_partition(database, ago, "retrieval_metric_event")
    keeper.execute("select brain.keep_partitions(3, 2, 5)")
    assert months(database) == {
        "brain.retrieval_metric_event": {-3, -2, -1, 0, 1, 2, 3, 4, 5},
        "brain.pack_delivery": {-2, -1, 0, 1, 2, 3, 4, 5},
    }
    assert keeper.execute("select brain.keep_partitions(3, 2, 5)").fetchone() == (0,)


def test_what_comes_and_goes_breaks_no_seal_and_what_hangs_on_it_does(
    database: Database, keeper: psycopg.Connection[Any], snapshot: Snapshot
) -> None:
    older_partition(database, 4)
    keeper.execute("select brain.keep_partitions(2, 2, 6)")
    assert_enforced(database.url, snapshot)
    name = "brain.pack_delivery_" + next(iter(_newest(database)))
    for statement, words in (
        (f"grant select on {name} to gw_reader", f"{name} (rights) was added"),
        (f"create policy more on {name} using (true)", f"policy more on {name} was added"),
        (f"alter table {name} no force row level security", f"not forced on `{name}`"),
    ):
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(statement.encode())
        with pytest.raises(NotEnforced) as caught:
            assert_enforced(database.url, snapshot)
        assert words in str(caught.value)


def _newest(database: Database) -> list[str]:
    with psycopg.connect(database.url) as connection:
        return sorted({month for _, month in connection.execute(PARTS)}, reverse=True)


@pytest.mark.parametrize("values", ["0, 1, 1", "1, 0, 1", "1, 1, 0", "null, 1, 1"])
def test_nothing_is_kept_for_less_than_a_month(
    keeper: psycopg.Connection[Any], values: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        keeper.execute(f"select brain.keep_partitions({values})".encode())


@pytest.mark.parametrize(
    "statement",
    [
        "drop table brain.pack_delivery",
        "create table brain.mine (a int)",
        "select * from brain.pack_delivery",
        "select * from brain.retrieval_metric_aggregate",
        "refresh materialized view brain.retrieval_metric_aggregate",
    ],
)
def test_who_tends_partitions_can_call_two_functions_and_nothing_else(
    keeper: psycopg.Connection[Any], statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        keeper.execute(statement.encode())


def test_a_partition_in_use_is_left_for_the_next_pass(
    database: Database, keeper: psycopg.Connection[Any]
) -> None:
    """The function gives up after two seconds instead of queueing in front of every insert."""
    older_partition(database, 4)
    with psycopg.connect(database.url) as busy:
        busy.execute("select * from brain.pack_delivery")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            keeper.execute("select brain.keep_partitions(2, 2, 3)")
    keeper.execute("select brain.keep_partitions(2, 2, 3)")
    assert -4 not in months(database)["brain.pack_delivery"]


def test_a_start_makes_what_is_missing_and_drops_nothing(
    database: Database, snapshot: Snapshot
) -> None:
    """So that a worker that was down for long stops no gateway that starts."""
    older_partition(database, 40)
    with psycopg.connect(database.url, autocommit=True) as connection:
        for month in _newest(database)[:2]:
            connection.execute(f"drop table brain.retrieval_metric_event_{month}".encode())
    assert len(months(database)["brain.retrieval_metric_event"]) < 4
    migrate(database.url, database.secret, snapshot)
    assert months(database)["brain.retrieval_metric_event"] == {0, 1, 2, 3}
    assert -40 in months(database)["brain.pack_delivery"]
