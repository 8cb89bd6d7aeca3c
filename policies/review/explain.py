"""``explain``: why one state is readable, or what is nearest to making it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies.decision import Effect
from policies.errors import PolicyError
from policies.faults import Place, advice, shown
from policies.kinds import SHAPES, Kind
from policies.review.change import words
from policies.review.page import Heading, Lines, Page
from policies.review.reading import Reading
from policies.review.unit_diff import verdict_text
from policies.snapshot import Snapshot
from policies.vocabulary import CONSENTS, FACETS

NEAREST: Final = 3


class UnknownState(PolicyError):
    """A word of the question is not in the vocabulary, so no unit and no caller can have it."""


@dataclass(frozen=True, slots=True)
class Miss:
    """One axis on which a rule does not match: what was asked, and what the rule accepts."""

    axis: str
    asked: str
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Near:
    """An allow rule that does not match, and every axis on which it fails."""

    rule: str
    place: Place
    misses: tuple[Miss, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """``deciding`` are the rules that made the verdict: the deny rows if any, else the allow rows.

    ``overruled`` are allow rows that match and are beaten by a deny row.
    """

    profile: str
    consent: str
    state: Mapping[str, str]
    class_id: int
    allowed: bool
    verdict: str
    deciding: tuple[tuple[str, Place], ...]
    overruled: tuple[str, ...]
    nearest: tuple[Near, ...]


def explain(reading: Reading, profile: str, state: Mapping[str, str], consent: str) -> Explanation:
    """Why one profile may read one state or not. Raises UnknownState. Cost: one pass over rows."""
    return explain_under(reading.snapshot, profile, state, consent)


def explain_under(
    snapshot: Snapshot, profile: str, state: Mapping[str, str], consent: str
) -> Explanation:
    """As ``explain``, under a policy that is in force."""
    vocabulary = snapshot.vocabulary
    _known("profile", profile, tuple(vocabulary.profiles))
    _known("consent", consent, CONSENTS)
    for facet in FACETS:
        _known(facet, state[facet], vocabulary.live(facet))
    class_id = vocabulary.class_id(state)
    found = snapshot.table.units.rules(profile, class_id, consent)
    places = {row.id: row.place for row in snapshot.table.units.rows}
    request = (profile, *(state[facet] for facet in FACETS), consent)
    return Explanation(
        profile,
        consent,
        dict(state),
        class_id,
        found.allowed,
        verdict_text(found),
        tuple((rule, places[rule]) for rule in found.denies or found.allows),
        found.allows if found.denies else (),
        () if found.allowed else _nearest(snapshot, request),
    )


def _known(what: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise UnknownState(f"{shown(word)} is not a known {what}; {advice(word, known)}")


def _nearest(snapshot: Snapshot, request: tuple[str, ...]) -> tuple[Near, ...]:
    """Allow rows that fail on the fewest axes; those for another profile come after the others."""
    axes = SHAPES[Kind.UNITS].axes
    vocabulary = snapshot.vocabulary
    domains: Mapping[str, Sequence[str]] = {
        "profile": tuple(vocabulary.profiles),
        "consent": CONSENTS,
        **{facet: vocabulary.live(facet) for facet in FACETS},
    }
    near: list[tuple[tuple[bool, int], Near]] = []
    for row in snapshot.table.units.rows:
        misses = tuple(
            Miss(axis, asked, tuple(word for word in domains[axis] if word in cell))
            for axis, asked, cell in zip(axes, request, row.cells, strict=True)
            if asked not in cell
        )
        if row.effect is Effect.ALLOW and misses:
            other = request[0] not in row.cells[0]
            near.append(((other, len(misses)), Near(row.id, row.place, misses)))
    near.sort(key=lambda pair: pair[0])
    return tuple(one for _, one in near[:NEAREST])


def page(report: Explanation) -> Page:
    """The explanation for people."""
    state = " ".join(f"{facet}={word}" for facet, word in report.state.items())
    lines = [f"{state} (class {report.class_id}), consent {report.consent}"]
    verb = "allowed" if report.allowed else "denied"
    lines += [f"{verb} by {rule} at {place.at}" for rule, place in report.deciding]
    lines += [f"{rule} matches and is overruled" for rule in report.overruled]
    if not report.deciding:
        lines.append("no rule speaks of it, hence denied")
    blocks: list[Lines | Heading] = [Lines(tuple(lines))]
    if report.nearest:
        blocks.append(Heading("Nearest allow rules"))
        for near in report.nearest:
            misses = (
                f"  {miss.axis} is {miss.asked}, the rule wants {words(miss.accepted)}"
                for miss in near.misses
            )
            head = f"{near.rule} at {near.place.at} fails on"
            blocks.append(Lines((head, *misses)))
    return Page(f"{report.verdict} {report.profile}", tuple(blocks))
