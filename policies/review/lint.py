"""``lint``: what of a policy has no effect, says a thing twice, or cannot be reached."""

from __future__ import annotations

from dataclasses import dataclass

from policies.review import lint_rules, lint_words
from policies.review.finding import Finding, Level
from policies.review.page import Grid, Lines, Page
from policies.review.reading import Reading


@dataclass(frozen=True, slots=True)
class Linted:
    """``remarks`` say which questions did not arise."""

    digest: str
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...]

    def at_least(self, level: Level) -> tuple[Finding, ...]:
        """The findings of this level and worse."""
        order = list(Level)
        return tuple(f for f in self.findings if order.index(f.level) <= order.index(level))


def lint(reading: Reading) -> Linted:
    """Everything found, by file and line. Cost: a few ms; the folder may be unproven."""
    found = [*lint_rules.findings(reading), *lint_words.findings(reading)]
    found.sort(key=lambda f: (f.place.file, f.place.line, f.place.column, f.code, f.reason))
    return Linted(reading.snapshot.digest, tuple(found), (lint_words.ROLES_NOTE,))


def page(report: Linted) -> Page:
    """The report for people, errors and warnings before notes."""
    counts = ", ".join(
        f"{sum(f.level is level for f in report.findings)} {level}s" for level in Level
    )
    rows = [
        (f.place.at, f.level.value, f.code, f.reason, f.remedy)
        for level in Level
        for f in report.findings
        if f.level is level
    ]
    head = ("where", "level", "code", "what", "what to do")
    grid = [Grid(head, tuple(rows))] if rows else []
    title = f"policy {report.digest[:12]}: {counts}"
    return Page(title, (*grid, Lines(report.remarks)))
