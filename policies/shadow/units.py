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
from dataclasses import dataclass

from policies.review.unit_diff import translated
from policies.shadow.disagreement import Way
from policies.snapshot import Snapshot
from policies.table import members
from policies.vocabulary import CONSENTS

ALL = -1
"""Every class, as a bit set to intersect with."""


@dataclass(frozen=True, slots=True)
class UnitPair:
    """``opens`` and ``closes`` hold class ids, first without and then with a consent."""

    differing: frozenset[int]
    opens: tuple[frozenset[int], frozenset[int]]
    closes: tuple[frozenset[int], frozenset[int]]

    def way(self, class_id: int, *, consent: bool) -> Way | None:
        """What the candidate would change for one unit. Cost: one set look-up, seldom three."""
        if class_id not in self.differing:
            return None
        if class_id in self.closes[consent]:
            return Way.CLOSES
        return Way.OPENS if class_id in self.opens[consent] else None


def unit_pair(live: Snapshot, candidate: Snapshot, profiles: Sequence[str]) -> UnitPair:
    """The two policies for units that all of these profiles must be allowed to read.

    A profile that one side does not have reads nothing there. Cost: microseconds, and one per
    class that differs.
    """
    sides = [
        tuple(_readable(snapshot, profiles, consent) for snapshot in (live, candidate))
        for consent in CONSENTS
    ]
    none, granted = (
        (was, translated(now, candidate.vocabulary, live.vocabulary)) for was, now in sides
    )
    opens = frozenset(members(none[1] & ~none[0])), frozenset(members(granted[1] & ~granted[0]))
    closes = frozenset(members(none[0] & ~none[1])), frozenset(members(granted[0] & ~granted[1]))
    return UnitPair(frozenset().union(*opens, *closes), opens, closes)


def _readable(snapshot: Snapshot, profiles: Sequence[str], consent: str) -> int:
    if not profiles:
        return 0
    bits = ALL
    for profile in profiles:
        bits &= snapshot.table.units.readable.get((profile, consent), 0)
    return bits
