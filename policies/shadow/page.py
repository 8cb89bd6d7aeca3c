"""The report of a shadow or a replay for people: what opens first, denominators last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policies.review import live
from policies.review.change import Direction
from policies.review.page import Block, Grid, Heading, Lines, Page
from policies.shadow.disagreement import Way
from policies.shadow.report import Group, ShadowReport

_CASES_MAX: Final = 5
_UNREACHED_MAX: Final = 40
_TITLES: Final = {
    Direction.WIDENING: "would WIDEN",
    Direction.NARROWING: "would narrow",
    Direction.NEUTRAL: "no disagreement",
}
_HEADS: Final = {
    Way.OPENS: "The candidate allows what was denied",
    Way.MOVES: "The candidate decides on something else",
    Way.CLOSES: "The candidate denies what was allowed",
}
_UNSEEN: Final = (
    "a unit that only the candidate would show is offered to nobody while the live policy is"
    " enforced, so hardly any is among what was observed"
)


def page(report: ShadowReport, *, title: str = "shadow", head: tuple[str, ...] = ()) -> Page:
    """The report; further cases of a group are counted, and whole in JSON."""
    lines = (
        *head,
        f"compared: {report.compared} decisions with"
        f" {', '.join(digest[:12] for digest in report.live) or 'nothing yet'}",
        f"disagreed: {report.disagreed}",
        *((f"shadow faults: {report.faults} (requests were not affected)",)
          if report.faults else ()),
        *report.notes,
    )  # fmt: skip
    blocks: list[Block] = [Lines(lines)]
    for way in (Way.OPENS, Way.MOVES, Way.CLOSES):
        blocks += _groups(_HEADS[way], [one for one in report.groups if one.way is way])
    blocks += _examples(report)
    blocks += _unreached(report)
    if report.numbers is not None:
        blocks += live.blocks(report.numbers, report.numbers.digest)
    blocks += _denominators(report)
    return Page(f"{title} {report.candidate[:12]}: {_outcome(report)}", tuple(blocks))


def _outcome(report: ShadowReport) -> str:
    if report.direction is Direction.NEUTRAL and not report.compared:
        return "nothing compared"
    return _TITLES[report.direction]


def _groups(head: str, groups: list[Group]) -> Iterator[Block]:
    if not groups:
        return
    yield Heading(head)
    for group in groups:
        yield Lines(
            (f"{group.seen}x {group.point} {group.profile}: {_rules(group)}", *_cases(group))
        )


def _rules(group: Group) -> str:
    return f"{_names(group.live_rules)} -> {_names(group.candidate_rules)}"


def _names(rules: tuple[str, ...]) -> str:
    return ", ".join(rules) or "no rule"


def _cases(group: Group) -> Iterator[str]:
    yield from (f"  {case}" for case in group.cases[:_CASES_MAX])
    more = len(group.cases) - _CASES_MAX
    if more > 0:
        yield f"  and {more} more"


def _examples(report: ShadowReport) -> Iterator[Block]:
    if not report.examples:
        return
    yield Heading("Sampled requests")
    yield Grid(
        ("point", "direction", "profile", "route", "states", "live"),
        tuple(
            (one.point, one.way, one.profile, one.route, _shown(one.states), one.live[:12])
            for one in report.examples
        ),
    )


def _shown(states: tuple[str, ...]) -> str:
    more = f" and {len(states) - 2} more" if len(states) > 2 else ""
    return ", ".join(states[:2]) + more if states else "-"


def _unreached(report: ShadowReport) -> Iterator[Block]:
    yield Heading("What opens by the tables")
    parts = report.unreached[:_UNREACHED_MAX]
    more = len(report.unreached) - len(parts)
    nothing = "nothing" if report.beside else "not known: no live policy is at hand"
    yield Lines((
        _UNSEEN,
        *(f"{one.profile}: {one.states} states, {_names(one.rules)}: {one.text}" for one in parts),
        *((f"and {more} more",) if more else ()),
        *((nothing,) if not parts else ()),
    ))  # fmt: skip


def _denominators(report: ShadowReport) -> Iterator[Block]:
    if not report.denominators:
        return
    yield Heading("How much was compared")
    yield Grid(
        ("decision", "profile", "compared", "disagreed"),
        tuple(
            (one.point, one.profile or "nobody", str(one.compared), str(one.disagreed))
            for one in report.denominators
        ),
    )
