"""Which classes of unit two policies judge differently, for one list of profiles.

Theory. Both sides are bit sets over class ids, so what the candidate would open or close is one
subtraction each, made once for a list of profiles. A unit then costs one look-up in the set of
classes about which the two disagree at all; only a member of it needs the consent as well.
Compartments and consents are the same on both sides, hence they cannot disagree.

Ids of two revisions may differ when the lock was tampered with; the candidate's are then read
by their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from policies.review.unit_diff import translated
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.snapshot import Snapshot
from policies.table import members
from policies.vocabulary import CONSENTS

ALL: Final = -1
"""Every class, as a bit set to intersect with."""

READ: Final = "read"
"""What a side says of a unit that it allows."""

JOINT: Final = "&"
"""Between profiles that apply together."""


def joined(profiles: Sequence[str]) -> str:
    """One name for an intersection of profiles: ``employee`` or ``employee&customer``."""
    return JOINT.join(profiles)


@dataclass(frozen=True, slots=True)
class UnitPair:
    """``opens`` and ``closes`` hold class ids, first without and then with a consent.

    ``name`` is that of the profiles together. Disagreements are made once each.
    """

    name: str
    differing: frozenset[int]
    opens: tuple[frozenset[int], frozenset[int]]
    closes: tuple[frozenset[int], frozenset[int]]
    _told: dict[tuple[int, bool], Disagreement] = field(
        default_factory=dict, repr=False, compare=False
    )

    def about(self, state: tuple[int, bool]) -> Disagreement | None:
        """The disagreement about units of one class and consent, to be counted as it is; None
        when both sides agree. Cost: one set look-up, and another for what is disagreed about."""
        if state[0] not in self.differing:
            return None
        known = self._told.get(state)
        if known is None:
            way = self.way(state[0], consent=state[1])
            if way is None:
                return None
            known = self._told[state] = about(way, self.name, state)
        return known

    def way(self, class_id: int, *, consent: bool) -> Way | None:
        """What the candidate would change for one unit. Cost: one set look-up, seldom three."""
        if class_id not in self.differing:
            return None
        if class_id in self.closes[consent]:
            return Way.CLOSES
        return Way.OPENS if class_id in self.opens[consent] else None


def about(way: Way, name: str, state: tuple[int, bool]) -> Disagreement:
    """A disagreement about units of one class and consent."""
    said = ("", READ) if way is Way.OPENS else (READ, "")
    return Disagreement(Point.UNIT, way, name, "", *said, class_id=state[0], consent=state[1])


def unit_pair(live: Snapshot, candidate: Snapshot, profiles: Sequence[str]) -> UnitPair:
    """The two policies for units that all of these profiles must be allowed to read.

    A profile that one side does not have reads nothing there. Cost: microseconds, and one per
    class that differs.
    """
    sides = [
        tuple(readable(snapshot, profiles, consent) for snapshot in (live, candidate))
        for consent in CONSENTS
    ]
    none, granted = (
        (was, translated(now, candidate.vocabulary, live.vocabulary)) for was, now in sides
    )
    opens = frozenset(members(none[1] & ~none[0])), frozenset(members(granted[1] & ~granted[0]))
    closes = frozenset(members(none[0] & ~none[1])), frozenset(members(granted[0] & ~granted[1]))
    differing = frozenset().union(*opens, *closes)
    return UnitPair(joined(profiles), differing, opens, closes)


def readable(snapshot: Snapshot, profiles: Sequence[str], consent: str) -> int:
    """The classes that all of these profiles read, as a bit set; none for no profile at all."""
    if not profiles:
        return 0
    bits = ALL
    for profile in profiles:
        bits &= snapshot.table.units.readable.get((profile, consent), 0)
    return bits
