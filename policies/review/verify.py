"""``verify``: congruence, cases, invariants and coverage of one policy folder, in one report."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from policies import casework, congruence
from policies.casework import Outcome
from policies.errors import IncongruentPolicy
from policies.faults import Place
from policies.review import forms
from policies.review.finding import Finding, Level
from policies.review.page import Block, Heading, Lines, Page
from policies.review.reading import Reading
from policies.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of one thing the cases touch, in whole percent, rounded down.

    ``untouched`` names the rest: its name and where it stands.
    """

    what: str
    percent: int
    wanted: int
    untouched: tuple[tuple[str, Place], ...]

    @property
    def enough(self) -> bool:
        return self.percent >= self.wanted


@dataclass(frozen=True, slots=True)
class Verified:
    """``exhaustive`` says how the full enumeration went; empty when it was not asked for."""

    digest: str
    forms: int
    exhaustive: str
    outcomes: tuple[Outcome, ...]
    coverage: tuple[Coverage, ...]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def passed(self) -> bool:
        return (
            bool(self.outcomes)
            and not self.failures
            and all(coverage.enough for coverage in self.coverage)
        )


def verify(
    reading: Reading, *, min_rules: int = 100, min_profiles: int = 100, exhaustive: str = ""
) -> Verified:
    """The report on a folder that was read, hence proven on its quotient already.

    Raises InvalidPolicy for a case file that cannot be read, IncongruentPolicy for an emitted
    form that differs. Cost: under a second.
    """
    compared = forms.check(reading.snapshot)
    results = casework.run(reading.folder, reading.snapshot)
    places = {row.id: row.place for row in reading.rows}
    vocabulary_file = Place("rules/vocabulary.yaml")
    return Verified(
        reading.snapshot.digest,
        compared,
        exhaustive,
        results.outcomes,
        (
            _coverage(
                "rules", len(places), min_rules, [(r, places[r]) for r in results.untested_rules]
            ),
            _coverage(
                "profiles",
                len(reading.snapshot.vocabulary.profiles),
                min_profiles,
                [(profile, vocabulary_file) for profile in results.untested_profiles],
            ),
        ),
    )


def _coverage(what: str, total: int, wanted: int, untouched: list[tuple[str, Place]]) -> Coverage:
    percent = 100 * (total - len(untouched)) // total if total else 100
    return Coverage(what, percent, wanted, tuple(untouched))


def fingerprint(snapshot: Snapshot) -> str:
    """SHA-256 over every verdict on units: what a full enumeration has proven.

    A kept proof counts for a table with this fingerprint only, so a changed compiler asks anew.
    """
    outer = hashlib.sha256(f"units {snapshot.digest}\n".encode())
    units = snapshot.table.units
    for (profile, consent), bits in sorted(units.readable.items()):
        outer.update(f"{profile} {consent} {units.class_count} {bits:x}\n".encode())
    return outer.hexdigest()


def enumerate_units(reading: Reading, progress: Callable[[int], None]) -> int:
    """How many questions Casbin answered as the table does: every state, profile and consent.

    Raises IncongruentPolicy at the first difference. Cost: about 0.1 ms each on a free core,
    172,800 with the shipped lists.
    """
    asked = congruence.check_units_exhaustively(
        reading.parsed.vocabulary, reading.snapshot.table.units, progress
    )
    if not asked:
        raise IncongruentPolicy("there is no state to ask about")
    return asked


def findings(report: Verified) -> tuple[Finding, ...]:
    """Cases that do not hold, and what falls below its threshold, by place."""
    found = [
        Finding(outcome.place, Level.ERROR, "case_failed", f"{outcome.name}: {problem}",
                "mend the rule, or the case if the change was meant")
        for outcome in report.failures
        for problem in outcome.problems
    ]  # fmt: skip
    for coverage in report.coverage:
        level = Level.NOTE if coverage.enough else Level.ERROR
        for name, place in coverage.untouched:
            reason = f"no case touches `{name}`"
            found.append(Finding(place, level, "uncovered", reason, "write a case"))
    return tuple(found)


def page(report: Verified) -> Page:
    """The report for people."""
    held = len(report.outcomes) - len(report.failures)
    head = [
        f"digest {report.digest}",
        "the table equals Casbin on its quotient",
        *([report.exhaustive] if report.exhaustive else []),
        f"{report.forms} emitted forms equal the table",
        f"{held} of {len(report.outcomes)} cases hold",
    ]
    blocks: list[Block] = [Lines(tuple(head))]
    for coverage in report.coverage:
        mark = "" if coverage.enough else f", below the wanted {coverage.wanted} %"
        blocks.append(Lines((f"{coverage.percent} % of {coverage.what} are covered{mark}",)))
        blocks.append(
            Lines(
                tuple(
                    f"  `{name}` at {place.at} is touched by no case"
                    for name, place in coverage.untouched
                )
            )
        )
    if report.failures:
        blocks.append(Heading("Cases that do not hold"))
        for outcome in report.failures:
            at = f"{outcome.place.file}:{outcome.place.line}:{outcome.place.column}"
            blocks.append(Lines((f"{at}: {outcome.name}", *(f"  {p}" for p in outcome.problems))))
    verdict = "holds" if report.passed else "does not hold"
    return Page(
        f"policy {report.digest[:12]} {verdict}", tuple(b for b in blocks if b != Lines(()))
    )
