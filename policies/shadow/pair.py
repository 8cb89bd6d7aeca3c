"""Two policies side by side: one question, both answers, and where they differ.

Laws
    * Like is compared with like. The route, the narrowing and the units of a caller are looked
      up for the profiles that the *live* policy gave it, in both policies: a caller who would be
      placed elsewhere is one disagreement (placement), not a hundred.
    * What the live policy refuses early is compared as far as it goes and no further.
    * Pure: nothing here counts, waits or raises for what a policy lacks.

Not compared: which tokens are believed and which paths exist. Both are settled before there is
a caller, so they are for ``diff`` to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from policies.shadow.disagreement import Disagreement, Point, way_of
from policies.shadow.sides import ANONYMOUS, Asked, PolicySide, Said, Side
from policies.shadow.units import UnitPair, unit_pair
from policies.snapshot import Snapshot

_KEPT_MAX: Final = 512
"""Answers that are remembered of each sort; they are freed at once, when a policy changes."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The points that were looked up in both, each with whose reach it was, and the differences."""

    points: tuple[tuple[Point, str], ...]
    found: tuple[Disagreement, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A live policy and the candidate beside it. What was looked up once is remembered."""

    live: Snapshot
    candidate: Snapshot
    _units: dict[tuple[str, ...], UnitPair] = field(default_factory=dict, repr=False, compare=False)
    _callers: dict[Asked, Compared] = field(default_factory=dict, repr=False, compare=False)

    def units(self, profiles: tuple[str, ...]) -> UnitPair:
        """Both policies for units under these profiles. Cost: one look-up after the first time."""
        known = self._units.get(profiles)
        if known is None:
            known = unit_pair(self.live, self.candidate, profiles)
            if len(self._units) < _KEPT_MAX:
                self._units[profiles] = known
        return known

    def caller(self, asked: Asked) -> Compared:
        """Placement, route, narrowing and purpose of one request.

        Cost: one look-up after the first time, else some ten in each policy.
        """
        known = self._callers.get(asked)
        if known is None:
            known = compared(PolicySide(self.live), PolicySide(self.candidate), asked)
            if len(self._callers) < _KEPT_MAX:
                self._callers[asked] = known
        return known


def compared(live: Side, candidate: Side, asked: Asked) -> Compared:
    """Every decision about one caller that both sides know."""
    points: list[tuple[Point, str]] = []
    found: list[Disagreement] = []
    for point, profile, subject, one, other in _looked_up(live, candidate, asked):
        if one is None or other is None:
            continue
        points.append((point, profile))
        way = way_of(one.value, other.value)
        if way is not None:
            found.append(
                Disagreement(
                    point, way, profile, subject, one.value, other.value, one.rules, other.rules
                )
            )
    return Compared(tuple(points), tuple(found))


_Both = tuple[Point, str, str, Said | None, Said | None]


def _looked_up(live: Side, candidate: Side, asked: Asked) -> Iterator[_Both]:
    """Every decision about this caller: point, whose reach, what on, and both answers."""

    def both(say: Callable[[Side], Said | None]) -> tuple[Said | None, Said | None]:
        return say(live), say(candidate)

    was, now = both(lambda side: side.placed(asked))
    if was is None or now is None:
        return
    profile = was.value
    yield Point.PLACEMENT, profile or now.value, _who(asked, was, now), was, now
    if not profile:
        return
    name = f"{asked.method} {asked.route}"
    yield Point.ROUTE, profile, name, *both(lambda side: side.routed(asked, profile))
    if asked.audience:
        found = both(lambda side: side.narrowed(asked.audience))
        yield Point.NARROWING, profile, asked.audience, *found
    if asked.upstream:
        found = both(lambda side: side.acting(asked.upstream))
        yield Point.NARROWING, profile, f"upstream {asked.upstream}", *found
    if asked.purpose:
        found = both(lambda side: side.purposed(asked.purpose))
        yield Point.PURPOSE, profile, asked.purpose, *found


def _who(asked: Asked, was: Said, now: Said) -> str:
    """What a placement was decided on, in words of the policy."""
    if not asked.issuer:
        return f"{ANONYMOUS} {asked.route}"
    if was.agent or now.agent:
        return f"{asked.issuer} {asked.task_scope or 'no task'} on {asked.route}"
    return asked.issuer
