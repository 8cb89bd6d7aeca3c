"""The matrix as one picture: what every profile reads something of."""

from __future__ import annotations

from policies.review.matrix import Matrix
from policies.review.writers.svg import Section, write
from policies.vocabulary import FACETS


def picture(report: Matrix) -> str:
    """The SVG, profiles as columns and values as rows, by facet."""
    columns = tuple(report.profiles)
    sections = [
        Section(facet, {v: row for (name, v), row in report.marks.items() if name == facet})
        for facet in FACETS
    ]
    counts = "; ".join(
        f"{profile} reads {plain} states, {consented} with consent"
        for profile, (plain, consented) in report.counts.items()
    )
    title = f"What each profile reads something of (policy {report.digest[:12]})"
    return write(title, counts, columns, sections)
