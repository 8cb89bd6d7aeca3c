"""A policy diff for people: what widens first, products instead of rows, filters last."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Final

from policies.review import live
from policies.review.change import Change, Direction
from policies.review.diff import PolicyDiff
from policies.review.page import Block, Code, Grid, Heading, Lines, Page
from policies.review.unit_diff import Filters, ProfileDiff, StateChange

_PARTS_MAX: Final = 40
_TITLES: Final = {
    Direction.WIDENING: "WIDENING",
    Direction.NARROWING: "narrowing",
    Direction.NEUTRAL: "changes no reach",
}


def page(report: PolicyDiff) -> Page:
    """The report; parts beyond 40 of one profile are counted, and whole in JSON."""
    title = f"policy {report.old[:12]} -> {report.new[:12]}: {_TITLES[report.direction]}"
    if not report.files and report.old == report.new:
        return Page("no difference", ())
    blocks: list[Block] = [Lines(("files that differ: " + (", ".join(report.files) or "none"),))]
    blocks += _broken(report)
    for direction in (Direction.WIDENING, Direction.NARROWING, Direction.NEUTRAL):
        blocks += _changes(report.changes, direction)
    if report.live is not None:
        blocks += live.blocks(report.live, report.old)
    for profile in report.profiles:
        blocks += _profile(profile)
    for profile in report.profiles:
        blocks += _filters(profile)
    return Page(title, tuple(blocks))


def _broken(report: PolicyDiff) -> Iterator[Block]:
    if not report.broken:
        return
    yield Heading(f"Newly broken cases and invariants: {len(report.broken)}")
    for broken in report.broken:
        which = " of the old revision" if broken.cases == "old" else ""
        head = f"{broken.at}: {broken.name}{which}"
        yield Lines((head, *(f"  {problem}" for problem in broken.problems)))


def _changes(changes: tuple[Change, ...], direction: Direction) -> Iterator[Block]:
    chosen = [change for change in changes if change.direction is direction]
    if chosen:
        yield Heading(f"Beside units: {_TITLES[direction]}")
        rows = tuple((change.area, change.name, change.what) for change in chosen)
        yield Grid(("what", "which", "how"), rows)


def _profile(profile: ProfileDiff) -> Iterator[Block]:
    verdict = _TITLES[Direction.WIDENING if profile.gained else Direction.NARROWING]
    yield Heading(f"{profile.profile}  +{profile.gained} -{profile.lost}  {verdict}")
    for part in profile.parts[:_PARTS_MAX]:
        yield Lines(tuple(_part(part)))
    if len(profile.parts) > _PARTS_MAX:
        yield Lines((f"and {len(profile.parts) - _PARTS_MAX} more products; see --format json",))


def _part(part: StateChange) -> Iterator[str]:
    sign = "+" if part.gained else "-"
    causes = ", ".join(f"{cause.rule} {cause.how}" for cause in part.causes)
    yield f"{sign} {part.text}  ({part.states} states)  {causes}"
    yield f"  e.g. {part.example}"


def _filters(profile: ProfileDiff) -> Iterator[Block]:
    yield Heading(f"{profile.profile}: what is pushed down (ids as ranges, whole in JSON)")
    for name, form in (("before", profile.before), ("after", profile.after)):
        if form is None:
            yield Lines((f"{name}: there is no such profile",))
        else:
            yield Lines((f"{name}:",))
            yield Code("sql", _sql(form))
            yield Code("json", _qdrant(form))


def _sql(form: Filters) -> str:
    plain, consented = map(ranges, form.classes)
    return f"{form.sql}\n-- scope_plain = {{{plain}}}\n-- scope_consented = {{{consented}}}"


def _qdrant(form: Filters) -> str:
    if form.qdrant is None:
        return "null"
    text = json.dumps(form.qdrant)
    return text.replace(json.dumps(list(form.classes[0])), f"[{ranges(form.classes[0])}]")


def ranges(ids: tuple[int, ...]) -> str:
    """Sorted integers as ranges: ``1-3, 7``."""
    found = []
    for _, run in itertools.groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        found.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ", ".join(found)
