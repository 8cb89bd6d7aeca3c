"""What a run counted, as it stands in the database: SQL and the reading of its rows.

Both doors to it (the command with the database's secret, operators through the gateway) run the
same statements and read the same form, so they tell the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gateway.errors import GatewayError
from gateway.shadow.keeping import COMPARED, FAULT
from policies.decision import PolicyDigest
from policies.files import PolicyFiles, digest_of
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.shadow.tally import Sample, Tally

_COLUMNS: Final = "run, digest, files, sample, started_at, started_by, reason, ended_at"
RUNNING: Final = f"select {_COLUMNS} from gate.policy_candidate where ended_at is null"
NEWEST: Final = f"select {_COLUMNS} from gate.policy_candidate order by run desc limit 1"
COUNTS: Final = """
select live_digest, outcome, point, profile, asked, live, candidate, live_rules, candidate_rules,
       class_id, consent, seen
from gate.shadow_count where run = %(run)s order by live_digest, key
"""
SAMPLES: Final = """
select live_digest, point, outcome, profile, route, class_ids from gate.shadow_sample
where run = %(run)s order by live_digest, point, outcome, profile, slot
"""
LIVE: Final = "select digest from gate.active_revision"
RELEASES: Final = """
select distinct on (digest) digest, files from gate.policy_release
where digest = any(%(digests)s) order by digest, generation desc
"""

Row = Sequence[Any]


class NotACandidate(GatewayError):
    """What stands in the database is not what its digest says; it is not compared."""


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


@dataclass(frozen=True, slots=True)
class Results:
    """A run with its counts by live digest; ``beside`` is the digest that is live now (empty:
    none). ``policies`` are the files of live policies, as far as the database has kept them."""

    run: Run
    tallies: Mapping[str, Tally]
    beside: str
    policies: Mapping[str, PolicyFiles]


def run_of(row: Row) -> Run:
    """A row of ``RUNNING`` or ``NEWEST``. Raises: NotACandidate."""
    run, digest, texts, sample, started_at, started_by, reason, ended_at = row
    files = files_of(texts)
    if files.digest != digest:
        raise NotACandidate(f"the files of run {run} are not those of `{digest[:12]}`")
    return Run(run, files, sample, started_at, started_by, reason, ended_at)


def tallies_of(counts: Iterable[Row], samples: Iterable[Row]) -> dict[str, Tally]:
    """The rows of ``COUNTS`` and ``SAMPLES``, by the digest of the live policy."""
    tallies: dict[str, Tally] = {}
    for row in counts:
        _add(tallies.setdefault(row[0], Tally()), row[1:])
    for live, point, outcome, profile, route, class_ids in samples:
        key = Point(point), Way(outcome), profile
        kept = tallies.setdefault(live, Tally()).samples.setdefault(key, [])
        kept.append(Sample(*key, route, tuple(class_ids)))
    return tallies


def policies_of(releases: Iterable[Row]) -> dict[str, PolicyFiles]:
    """The rows of ``RELEASES`` that are what their digest says."""
    found = {digest: files_of(texts) for digest, texts in releases}
    return {digest: files for digest, files in found.items() if files.digest == digest}


def files_of(texts: Mapping[str, str]) -> PolicyFiles:
    """Files that were kept as text, under the digest that they have.

    All as from an overlay: they are compared here, never served, whoever their issuers are.
    """
    contents = {str(path): str(text).encode() for path, text in texts.items()}
    return PolicyFiles(contents, digest_of(contents), frozenset(contents))


def _add(tally: Tally, row: Row) -> None:
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
