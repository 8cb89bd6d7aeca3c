"""Which classes of unit two policies judge differently, for one list of profiles.

Theory. Both sides are bit sets over class ids, so what the candidate would open or close is one
subtraction each, made once for a list of profiles in microseconds, however much differs. A unit
then costs one test of the set of classes about which the two disagree at all; only a member of
it needs the consent as well. Compartments and consents are the same on both sides, hence they
cannot disagree.

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
    """``opens`` and ``closes`` hold a bit per class id, first without and then with a consent.

    ``name`` is that of the profiles together. Disagreements are made once each.
    """

    name: str
    differing: bytes
    opens: tuple[bytes, bytes]
    closes: tuple[bytes, bytes]
    _told: dict[tuple[int, bool], Disagreement] = field(
        default_factory=dict, repr=False, compare=False
    )

    def about(self, state: tuple[int, bool]) -> Disagreement | None:
        """The disagreement about units of one class and consent, to be counted as it is; None
        when both sides agree. Cost: one test of a bit, and a look-up of what is disagreed about."""
        byte, differing = state[0] >> 3, self.differing  # in line: asked for every unit
        if not 0 <= byte < len(differing) or not differing[byte] >> (state[0] & 7) & 1:
            return None
        known = self._told.get(state)
        if known is None:
            way = self.way(state[0], consent=state[1])
            if way is None:
                return None
            known = self._told[state] = about(way, self.name, state)
        return known

    def way(self, class_id: int, *, consent: bool) -> Way | None:
        """What the candidate would change for one unit."""
        if _has(self.closes[consent], class_id):
            return Way.CLOSES
        return Way.OPENS if _has(self.opens[consent], class_id) else None


def _has(bits: bytes, class_id: int) -> bool:
    byte = class_id >> 3
    return 0 <= byte < len(bits) and bool(bits[byte] >> (class_id & 7) & 1)


def about(way: Way, name: str, state: tuple[int, bool]) -> Disagreement:
    """A disagreement about units of one class and consent."""
    said = ("", READ) if way is Way.OPENS else (READ, "")
    return Disagreement(Point.UNIT, way, name, "", *said, class_id=state[0], consent=state[1])


def unit_pair(live: Snapshot, candidate: Snapshot, profiles: Sequence[str]) -> UnitPair:
    """The two policies for units that all of these profiles must be allowed to read.

    A profile that one side does not have reads nothing there. Cost: some ten microseconds.
    """
    size = (live.vocabulary.class_count + 7) // 8
    opens: list[int] = []
    closes: list[int] = []
    for consent in CONSENTS:
        was = readable(live, profiles, consent)
        now = readable(candidate, profiles, consent)
        now = translated(now, candidate.vocabulary, live.vocabulary)
        opens.append(now & ~was)
        closes.append(was & ~now)
    differing = opens[0] | opens[1] | closes[0] | closes[1]

    def packed(bits: int) -> bytes:
        return bits.to_bytes(size, "little")

    return UnitPair(
        joined(profiles),
        packed(differing),
        (packed(opens[0]), packed(opens[1])),
        (packed(closes[0]), packed(closes[1])),
    )


def readable(snapshot: Snapshot, profiles: Sequence[str], consent: str) -> int:
    """The classes that all of these profiles read, as a bit set; none for no profile at all."""
    if not profiles:
        return 0
    bits = ALL
    for profile in profiles:
        bits &= snapshot.table.units.readable.get((profile, consent), 0)
    return bits
