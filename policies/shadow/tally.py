"""Counts of comparisons and disagreements, bounded, for one pair of policies.

Laws
    * Every comparison is in exactly one denominator and every disagreement in exactly one count;
      when there are too many different ones, further ones are counted together, never dropped.
    * A sample names policy words and class ids, and there are few of them per key.

Not for several threads. This module does not know where counts are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from policies.decision import UNCLASSED
from policies.shadow.disagreement import Disagreement, Point, Way

KEYS_MAX: Final = 4_096
"""Different disagreements that are told apart between two flushes."""

SAMPLES_MAX: Final = 20
SAMPLE_CLASSES_MAX: Final = 50

SampleKey = tuple[Point, Way, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request about which the policies disagreed: the route, and the classes at stake."""

    point: Point
    way: Way
    profile: str
    route: str
    class_ids: tuple[int, ...] = ()


@dataclass(slots=True)
class Tally:
    """``compared`` counts look-ups by (point, profile); ``seen`` counts disagreements."""

    compared: Counter[tuple[Point, str]] = field(default_factory=Counter)
    seen: Counter[Disagreement] = field(default_factory=Counter)
    samples: dict[SampleKey, list[Sample]] = field(default_factory=dict)
    faults: int = 0

    def look(self, point: Point, profile: str, times: int = 1) -> None:
        """Count comparisons. Cost: one look-up."""
        self.compared[point, profile] += times

    def add(self, found: Disagreement, times: int = 1) -> None:
        """Count one disagreement. Cost: one look-up."""
        if len(self.seen) >= KEYS_MAX and found not in self.seen:
            found = replace(found, asked="*", live_rules=(), candidate_rules=(), class_id=UNCLASSED)
        self.seen[found] += times

    def sample(self, found: Iterable[Disagreement], route: str) -> None:
        """Keep one request as an example of each kind of disagreement that it showed."""
        classes: dict[SampleKey, list[int]] = {}
        for one in found:
            classes.setdefault((one.point, one.way, one.profile), []).append(one.class_id)
        for key, class_ids in classes.items():
            self.keep(key, route, class_ids)

    def keep(self, key: SampleKey, route: str, class_ids: Collection[int]) -> None:
        """Keep one request as an example of one kind, unless there are enough of it."""
        kept = self.samples.setdefault(key, [])
        if len(kept) >= SAMPLES_MAX:
            return
        states = sorted({*class_ids} - {UNCLASSED})
        made = Sample(*key, route, tuple(states[:SAMPLE_CLASSES_MAX]))
        if made not in kept:
            kept.append(made)

    def merge(self, other: Tally) -> None:
        """Take over what another one counted, within the same bounds."""
        self.compared.update(other.compared)
        for found, times in other.seen.items():
            self.add(found, times)
        for key, kept in other.samples.items():
            mine = self.samples.setdefault(key, [])
            mine += [one for one in kept if one not in mine][: SAMPLES_MAX - len(mine)]
        self.faults += other.faults

    def __bool__(self) -> bool:
        return bool(self.compared or self.seen or self.faults)
