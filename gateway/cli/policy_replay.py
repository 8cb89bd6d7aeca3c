"""``gateway policy replay``: what would a candidate have decided on what was recorded?"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.cli.failure import Exit, Failure, of_policy
from gateway.cli.policy_diff import read_side
from gateway.cli.policy_report import Format, FormatOption, Verdict, put
from gateway.decisions.reader import InvalidRecord, read_records
from gateway.shadow.replay import Replayed
from gateway.shadow.replay import replay as replay_records
from policies.casework import Outcome
from policies.errors import PolicyError
from policies.faults import Place
from policies.review.change import Direction
from policies.review.reading import Reading, read
from policies.review.writers import junit
from policies.shadow.page import page
from policies.shadow.report import Group, ShadowReport, report

ENDS: Final = {
    Direction.WIDENING: Verdict.WIDENING,
    Direction.NARROWING: Verdict.NARROWING,
    Direction.NEUTRAL: Verdict.OK,
}


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """``skipped`` are records that were not replayed, ``unit_skipped`` those of which only the
    units were not, each by reason; ``other_lines`` are none of a decision log."""

    records: int
    replayed: int
    skipped: Mapping[str, int]
    unit_skipped: Mapping[str, int]
    other_lines: int
    sampled: int
    dropped: int
    found: ShadowReport


def replay(
    records: Annotated[
        Path, typer.Argument(metavar="RECORDS", help="A decision log, JSON lines; `-` to be piped.")
    ],
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A policy folder.")],
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="OLD",
            help="The policy that made the records: a folder, or a git revision.",
        ),
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option("--overlay", metavar="DIR", help="Laid over both folders.")
    ] = None,
    form: FormatOption = Format.TEXT,
) -> int:
    """Decide recorded requests anew: 0 nothing differs, 10 narrowing only, 20 widening, 3 invalid.

    4: not one record could be decided anew, so nothing is shown.
    With --base the rules behind units are named, and records that it does not reproduce are told.
    """
    new = _read(candidate, overlay)
    old = _base(base, candidate, overlay) if base is not None else None
    with _lines(records) as lines:
        counted = _Counted(lines)
        try:
            replayed = replay_records(
                read_records(counted, skip_foreign=True),
                new.snapshot,
                old.snapshot if old is not None else None,
            )
        except InvalidRecord as error:
            reason = f"{records}:{error.line}: {error.reason}"
            raise Failure(Exit.POLICY, "record_invalid", reason, error.remedy) from error
    told = _report(replayed, counted.lines, new, old)
    others = {Format.JUNIT: lambda: junit.write([*_outcomes(told, records.name)])}
    put(form, page(told.found, title="replay", head=_head(told)), told, others)
    if not told.replayed:
        reason = f"none of {told.records} records could be decided anew"
        remedy = "give a log with unmasked claims of requests that policy decided (see above)"
        raise Failure(Exit.UNAVAILABLE, "nothing_replayed", reason, remedy)
    return ENDS[told.found.direction]


def _report(replayed: Replayed, lines: int, new: Reading, old: Reading | None) -> ReplayReport:
    lives: dict[str, Reading] = {old.snapshot.digest: old} if old is not None else {}
    notes = []
    if old is None:
        notes.append("without --base the rules behind units are not known")
    if replayed.sampled:
        notes.append(f"{replayed.sampled} records stand for more requests than themselves")
    if replayed.dropped:
        notes.append(f"the log says that {replayed.dropped} records were lost")
    return ReplayReport(
        replayed.records,
        replayed.records - replayed.skipped.total(),
        dict(sorted(replayed.skipped.items())),
        dict(sorted(replayed.unit_skipped.items())),
        lines - replayed.records,
        replayed.sampled,
        replayed.dropped,
        report(
            new,
            replayed.tallies,
            lives,
            beside=old.snapshot.digest if old is not None else "",
            notes=notes,
        ),
    )


def _head(told: ReplayReport) -> tuple[str, ...]:
    return (
        f"records: {told.records}, replayed: {told.replayed}",
        *(f"  not replayed: {times}x {reason}" for reason, times in told.skipped.items()),
        *(f"  units not replayed: {times}x {why}" for why, times in told.unit_skipped.items()),
        *((f"other lines, which are no records: {told.other_lines}",) if told.other_lines else ()),
    )


def _outcomes(told: ReplayReport, file: str) -> Iterator[Outcome]:
    """A test per decision and profile, which fails when the candidate decides otherwise."""
    place = Place(file)
    for one in told.found.denominators:
        problems = tuple(
            _problem(group)
            for group in told.found.groups
            if (group.point, group.profile) == (one.point, one.profile)
        )
        name = f"{one.point} of {one.profile or 'nobody'}: {one.compared} compared"
        yield Outcome(place, name, problems)
    for reason, times in told.skipped.items():
        yield Outcome(place, f"not replayed: {times}x {reason}", ())
    for reason, times in told.unit_skipped.items():
        yield Outcome(place, f"units not replayed: {times}x {reason}", ())


def _problem(group: Group) -> str:
    sides = (", ".join(rules) or "no rule" for rules in (group.live_rules, group.candidate_rules))
    return f"{group.way} {group.seen}x: {' -> '.join(sides)}: {'; '.join(group.cases)}"


def _read(folder: Path, overlay: Path | None) -> Reading:
    try:
        return read(folder, overlay)
    except PolicyError as error:
        raise of_policy(error, folder) from error


def _base(side: str, candidate: Path, overlay: Path | None) -> Reading:
    """The folder, or the candidate's own folder at a revision, as in ``policy diff``."""
    with ExitStack() as stack:
        return read_side(stack, side, candidate, overlay)


@contextmanager
def _lines(records: Path) -> Iterator[Iterable[bytes]]:
    if str(records) == "-":
        yield sys.stdin.buffer
        return
    try:
        with records.open("rb") as file:
            yield file
    except OSError as error:
        reason = f"`{records}` cannot be read ({error.strerror})"
        raise Failure(Exit.USAGE, "no_records", reason, "name a file of JSON lines") from error


class _Counted:
    """Lines that count themselves, blank ones left out."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.lines = 0
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.lines += bool(line.strip())
            yield line
