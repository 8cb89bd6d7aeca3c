"""Runs of candidates in the database: begun, ended, read by gateways, and what they counted.

A run is begun and ended as ``gw_policy``; gateways read it as ``gw_watch``
(`gateway.reload.sightings`). The channel ``gw_policy`` with payload ``candidate`` means *look
again*, never *believe me*.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import errors

from gateway.errors import GatewayError
from gateway.shadow.keeping import COMPARED, FAULT
from policies.decision import PolicyDigest
from policies.files import PolicyFiles, digest_of
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.shadow.tally import Sample, Tally

CHANNEL: Final = "gw_policy"
NOTICE: Final = "candidate"

_COLUMNS: Final = "run, digest, files, sample, started_at, started_by, reason, ended_at"
_RUNNING: Final = f"select {_COLUMNS} from gate.policy_candidate where ended_at is null"
_NEWEST: Final = f"select {_COLUMNS} from gate.policy_candidate order by run desc limit 1"
_BEGIN: Final = """
insert into gate.policy_candidate (digest, files, sample, started_by, reason)
values (%s, %s, %s, %s, %s) returning run
"""
_END: Final = """
update gate.policy_candidate set ended_at = now(), ended_by = %s where ended_at is null
returning run, digest
"""
_COUNTS: Final = """
select live_digest, outcome, point, profile, asked, live, candidate, live_rules, candidate_rules,
       class_id, consent, seen
from gate.shadow_count where run = %s order by live_digest, key
"""
_SAMPLES: Final = """
select live_digest, point, outcome, profile, route, class_ids from gate.shadow_sample
where run = %s order by live_digest, point, outcome, profile, slot
"""

_Row = tuple[Any, ...]


class NotACandidate(GatewayError):  # noqa: N818 - reads as what it is
    """What stands in the database is not what its digest says; it is not compared."""


class AlreadyRunning(GatewayError):  # noqa: N818
    """Another candidate is running; ``told`` says which and since when."""


@dataclass(frozen=True, slots=True)
class Run:
    """One candidate and its run. ``files`` has its digest: that was checked."""

    run: int
    files: PolicyFiles
    sample: int
    started_at: datetime
    started_by: str
    reason: str
    ended_at: datetime | None

    @property
    def digest(self) -> PolicyDigest:
        return self.files.digest


def running(connection: psycopg.Connection[Any]) -> Run | None:
    """The candidate that gateways compare with now; None when there is none."""
    row = connection.execute(_RUNNING).fetchone()
    return None if row is None else _run(row)


def newest(connection: psycopg.Connection[Any]) -> Run | None:
    """The run that was begun last, running or ended."""
    row = connection.execute(_NEWEST).fetchone()
    return None if row is None else _run(row)


def begin(
    connection: psycopg.Connection[Any],
    *,
    files: PolicyFiles,
    sample: int,
    started_by: str,
    reason: str,
) -> int:
    """Begin a run and tell the gateways; its number. Raises: AlreadyRunning."""
    texts = {path: content.decode() for path, content in sorted(files.contents.items())}
    values = [files.digest, json.dumps(texts), sample, started_by, reason]
    try:
        with connection.transaction():
            row = connection.execute(_BEGIN, values).fetchone()
            _notify(connection)
    except errors.UniqueViolation:
        raise AlreadyRunning(_of_running(connection)) from None
    return int(row[0]) if row is not None else 0


def end(connection: psycopg.Connection[Any], *, ended_by: str) -> tuple[int, str] | None:
    """End the run and tell the gateways: its number and digest; None when none was running."""
    with connection.transaction():
        row = connection.execute(_END, [ended_by]).fetchone()
        _notify(connection)
    return None if row is None else (int(row[0]), str(row[1]))


def counted(connection: psycopg.Connection[Any], run: int) -> dict[str, Tally]:
    """All counts and samples of a run, by the digest of the live policy."""
    tallies: dict[str, Tally] = {}
    for row in connection.execute(_COUNTS, [run]):
        _add(tallies.setdefault(row[0], Tally()), row[1:])
    for live, point, outcome, profile, route, class_ids in connection.execute(_SAMPLES, [run]):
        key = Point(point), Way(outcome), profile
        kept = tallies.setdefault(live, Tally()).samples.setdefault(key, [])
        kept.append(Sample(*key, route, tuple(class_ids)))
    return tallies


def _add(tally: Tally, row: _Row) -> None:
    outcome, point, profile, asked, live, candidate, was, now, class_id, consent, seen = row
    if outcome == COMPARED:
        tally.look(Point(point), profile, seen)
    elif outcome == FAULT:
        tally.faults += seen
    else:
        one = Disagreement(
            Point(point), Way(outcome), profile, asked, live, candidate,
            tuple(was), tuple(now), class_id, consent,
        )  # fmt: skip
        tally.seen[one] += seen


def _notify(connection: psycopg.Connection[Any]) -> None:
    connection.execute("select pg_notify(%s, %s)", [CHANNEL, NOTICE])


def _of_running(connection: psycopg.Connection[Any]) -> str:
    found = running(connection)
    if found is None:
        return "another candidate was started and stopped just now"
    since = f"{found.started_at:%Y-%m-%d %H:%M}"
    return f"candidate `{found.digest[:12]}` runs since {since}, started by {found.started_by}"


def _run(row: _Row) -> Run:
    run, digest, texts, sample, started_at, started_by, reason, ended_at = row
    contents = {str(path): str(text).encode() for path, text in texts.items()}
    files = PolicyFiles(contents, digest_of(contents), frozenset())
    if files.digest != digest:
        raise NotACandidate(f"the files of run {run} are not those of `{digest[:12]}`")
    return Run(run, files, sample, started_at, started_by, reason, ended_at)
