"""Runs of candidates: begun, ended and read by commands, as ``gw_policy``.

Gateways read the running one as ``gw_watch`` (`gateway.reload.sightings`). The channel
``gw_policy`` with payload ``candidate`` means *look again*, never *believe me*.
"""

from __future__ import annotations

import json
from typing import Any, Final

import psycopg
from psycopg import errors

from gateway.errors import GatewayError
from gateway.reload.sightings import CHANNEL
from gateway.shadow import results
from gateway.shadow.results import Results, Run, policies_of, run_of, tallies_of
from policies.files import PolicyFiles

NOTICE: Final = "candidate"

_BEGIN: Final = """
insert into gate.policy_candidate (digest, files, overlaid, sample, started_by, reason)
values (%s, %s, %s, %s, %s, %s) returning run
"""
_END: Final = """
update gate.policy_candidate set ended_at = now(), ended_by = %s where ended_at is null
returning run, digest
"""

Connection = psycopg.Connection[Any]


class AlreadyRunning(GatewayError):
    """Another candidate is running; the text says which and since when."""


def begin(
    connection: Connection, *, files: PolicyFiles, sample: int, started_by: str, reason: str
) -> int:
    """Begin a run and tell the gateways; its number. Raises: AlreadyRunning."""
    texts = {path: content.decode() for path, content in sorted(files.contents.items())}
    overlaid = sorted(files.overlaid)
    values = [files.digest, json.dumps(texts), overlaid, sample, started_by, reason]
    try:
        with connection.transaction():
            row = connection.execute(_BEGIN, values).fetchone()
            _notify(connection)
    except errors.UniqueViolation:
        raise AlreadyRunning(_of_running(connection)) from None
    return int(row[0]) if row is not None else 0


def end(connection: Connection, *, ended_by: str) -> tuple[int, str] | None:
    """End the run and tell the gateways: its number and digest; None when none was running."""
    with connection.transaction():
        row = connection.execute(_END, [ended_by]).fetchone()
        _notify(connection)
    return None if row is None else (int(row[0]), str(row[1]))


def running(connection: Connection) -> Run | None:
    """The candidate that gateways compare with now. Raises: results.NotACandidate."""
    row = connection.execute(results.RUNNING).fetchone()
    return None if row is None else run_of(row)


def newest(connection: Connection) -> Results | None:
    """The run that was begun last, running or ended, with all that it counted.

    Raises: results.NotACandidate.
    """
    row = connection.execute(results.NEWEST).fetchone()
    if row is None:
        return None
    run = run_of(row)
    tallies = tallies_of(
        connection.execute(results.COUNTS, {"run": run.run}),
        connection.execute(results.SAMPLES, {"run": run.run}),
    )
    beside = live_digest(connection)
    kept = connection.execute(results.RELEASES, {"digests": sorted({*tallies, beside})})
    return Results(run, tallies, beside, policies_of(kept))


def live_digest(connection: Connection) -> str:
    """The digest that the database enforces, empty when there is none."""
    row = connection.execute(results.LIVE).fetchone()
    return str(row[0]) if row is not None else ""


def _notify(connection: Connection) -> None:
    connection.execute("select pg_notify(%s, %s)", [CHANNEL, NOTICE])


def _of_running(connection: Connection) -> str:
    found = running(connection)
    if found is None:
        return "another candidate was started and stopped just now"
    since = f"{found.started_at:%Y-%m-%d %H:%M}"
    return f"candidate `{found.digest[:12]}` runs since {since}, started by {found.started_by}"
