"""A database session of one station, for the commands that act as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from gateway.cli.failure import Exit, Failure, of_database
from gateway.compose.stores import attached
from gateway.settings import Settings
from policies.snapshot import Snapshot

Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def station(settings: Settings, role: str) -> Iterator[Connection]:
    """A session of ``role`` in the running or the configured database; committed at the end.

    Raises: Failure when the database does not let it in.
    """
    from gateway.compose.database import station_dsn  # late: it loads every house, a second or two

    with attached(settings) as stores:
        try:
            connection = psycopg.connect(station_dsn(stores, role), connect_timeout=10)
        except psycopg.Error as error:
            raise of_database(error) from error
        with connection:
            yield connection


def in_force(connection: Connection, snapshot: Snapshot) -> None:
    """Refuse when another policy is in force than the one that was read here.

    It may let others decide, and other issuers give a subject another id: what is said to be
    granted would then open nothing, or what is opened nobody decided. Raises: Failure.
    """
    row = connection.execute("select digest from gate.active_revision").fetchone()
    if row is not None and row[0] != snapshot.digest:
        reason = f"the policy in force is {row[0][:12]}, the one read here {snapshot.digest[:12]}"
        remedy = "give --config and --overlay of the running gateway, or start it anew"
        raise Failure(Exit.REFUSED, "policy_differs", reason, remedy)
