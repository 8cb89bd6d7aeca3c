"""What a shadow or a replay found: by rule, profile and direction, with its denominators.

Laws
    * Sums of the groups are the counts that came in; nothing is left out for being rare.
    * What a candidate would *open* is mostly not observable: the database and the index offer a
      caller nothing that the live policy denies, so such units never come to be judged. The
      report therefore always says beside it what opens by the tables alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from policies.decision import UNCLASSED
from policies.predicate import boxes
from policies.review import unit_diff
from policies.review.change import Direction
from policies.review.live import LiveNumbers
from policies.review.reading import Reading
from policies.shadow.attribution import attributed
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.shadow.tally import Tally
from policies.vocabulary import CONSENTS, Vocabulary

UNKNOWN_RULES: Final = ("(policy not at hand)",)


@dataclass(frozen=True, slots=True)
class Denominator:
    """How often one decision was looked up in both policies, and how often they differed."""

    point: Point
    profile: str
    compared: int
    disagreed: int


@dataclass(frozen=True, slots=True)
class Group:
    """Disagreements with one cause. ``cases`` says what on: states of units folded, or words."""

    point: Point
    way: Way
    profile: str
    live_rules: tuple[str, ...]
    candidate_rules: tuple[str, ...]
    seen: int
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One sampled request: route and states, nothing else."""

    live: str
    point: Point
    way: Way
    profile: str
    route: str
    class_ids: tuple[int, ...]
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unreached:
    """States that the candidate opens to a profile by the tables, seen in a request or not."""

    profile: str
    states: int
    text: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """``live`` are the digests that the candidate was compared with, ``beside`` the one by whose
    tables ``unreached`` was found (empty: none was at hand). ``numbers`` say how many live units
    have the states that it opens and closes, where somebody asked a running gateway."""

    candidate: str
    live: tuple[str, ...]
    beside: str
    compared: int
    disagreed: int
    faults: int
    denominators: tuple[Denominator, ...]
    groups: tuple[Group, ...]
    examples: tuple[Example, ...]
    unreached: tuple[Unreached, ...]
    notes: tuple[str, ...]
    numbers: LiveNumbers | None = None

    @property
    def direction(self) -> Direction:
        """Which way the observed disagreements go; another reach counts as a wider one."""
        ways = {group.way for group in self.groups}
        if ways - {Way.CLOSES}:
            return Direction.WIDENING
        return Direction.NARROWING if ways else Direction.NEUTRAL


def report(
    candidate: Reading,
    tallies: Mapping[str, Tally],
    lives: Mapping[str, Reading],
    *,
    beside: str = "",
    numbers: LiveNumbers | None = None,
    notes: Sequence[str] = (),
) -> ShadowReport:
    """What was counted, by live digest, as one report.

    ``lives`` holds the readings of live policies as far as they are at hand: without one, the
    rules behind its units stay unknown. ``beside`` is the digest of the live policy with which
    the candidate is compared by the tables (none: nothing is). Cost: one pass over the rows for
    each distinct disagreement about units.
    """
    whole = Tally()
    for tally in tallies.values():
        whole.merge(tally)
    groups = _groups(candidate, tallies, lives)
    return ShadowReport(
        candidate.snapshot.digest,
        tuple(tallies),
        beside if beside in lives else "",
        whole.compared.total(),
        sum(group.seen for group in groups),
        whole.faults,
        _denominators(tallies),
        groups,
        tuple(_examples(tallies, lives)),
        tuple(_unreached(lives[beside], candidate)) if beside in lives else (),
        tuple(notes),
        numbers,
    )


def _denominators(tallies: Mapping[str, Tally]) -> tuple[Denominator, ...]:
    compared: Counter[tuple[Point, str]] = Counter()
    differed: Counter[tuple[Point, str]] = Counter()
    for tally in tallies.values():
        compared.update(tally.compared)
        for one, times in tally.seen.items():
            differed[one.point, one.profile] += times
    order = list(Point)
    return tuple(
        Denominator(point, profile, compared[point, profile], differed[point, profile])
        for point, profile in sorted(
            compared.keys() | differed.keys(), key=lambda key: (order.index(key[0]), key[1])
        )
    )


_GroupKey = tuple[Point, Way, str, tuple[str, ...], tuple[str, ...]]


def _groups(
    candidate: Reading, tallies: Mapping[str, Tally], lives: Mapping[str, Reading]
) -> tuple[Group, ...]:
    seen: Counter[_GroupKey] = Counter()
    words: dict[_GroupKey, set[str]] = {}
    states: dict[_GroupKey, dict[str, set[tuple[int, bool]]]] = {}
    for digest, tally in tallies.items():
        for one, times in tally.seen.items():
            told = _told(one, candidate, lives.get(digest))
            key = (told.point, told.way, told.profile, told.live_rules, told.candidate_rules)
            seen[key] += times
            if told.class_id == UNCLASSED:
                words.setdefault(key, set()).add(_words(told))
            else:
                of_live = states.setdefault(key, {}).setdefault(digest, set())
                of_live.add((told.class_id, told.consent))
    made = [
        Group(
            *key,
            times,
            (
                *sorted(words.get(key, ())),
                *itertools.chain.from_iterable(
                    _folded(pairs, lives.get(digest))
                    for digest, pairs in states.get(key, {}).items()
                ),
            ),
        )
        for key, times in seen.items()
    ]
    order = list(Way)
    return tuple(
        sorted(made, key=lambda one: (order.index(one.way), -one.seen, one.point, one.profile))
    )


def _told(one: Disagreement, candidate: Reading, live: Reading | None) -> Disagreement:
    """A disagreement with its rules, as far as the policies are at hand."""
    if one.point is not Point.UNIT or one.class_id == UNCLASSED:
        return one
    if live is None:
        return replace(one, live_rules=UNKNOWN_RULES, candidate_rules=UNKNOWN_RULES)
    return attributed(live.snapshot, candidate.snapshot, one)


def _words(one: Disagreement) -> str:
    if one.point is Point.UNIT:
        return "further classes, counted together"
    if one.point in {Point.ROUTE, Point.PURPOSE}:
        return one.asked
    return f"{one.asked}: {one.live or 'nobody'} -> {one.candidate or 'nobody'}"


def _folded(pairs: set[tuple[int, bool]], live: Reading | None) -> Iterable[str]:
    """States as products, by the consent under which they were judged."""
    for consent in (False, True):
        ids = [class_id for class_id, given in pairs if given is consent]
        suffix = f"consent={CONSENTS[consent]}"
        if live is None:
            yield from (f"class {class_id} {suffix}" for class_id in sorted(ids))
        elif ids:
            vocabulary = live.snapshot.vocabulary
            for box in boxes(vocabulary, ids):
                yield f"{box.text(vocabulary)} {suffix}"


def _examples(tallies: Mapping[str, Tally], lives: Mapping[str, Reading]) -> Iterable[Example]:
    for digest, tally in tallies.items():
        live = lives.get(digest)
        for kept in tally.samples.values():
            for one in kept:
                states = _states(live.snapshot.vocabulary, one.class_ids) if live else ()
                yield Example(
                    digest, one.point, one.way, one.profile, one.route, one.class_ids, states
                )


def _states(vocabulary: Vocabulary, class_ids: Iterable[int]) -> tuple[str, ...]:
    return tuple(
        "/".join(vocabulary.facets_of(class_id).values())
        for class_id in class_ids
        if 0 <= class_id < vocabulary.class_count
    )


def _unreached(live: Reading, candidate: Reading) -> Iterable[Unreached]:
    for profile in unit_diff.compare(live, candidate):
        for part in profile.parts:
            if part.gained:
                causes = tuple(f"{cause.rule} {cause.how}" for cause in part.causes)
                yield Unreached(profile.profile, part.states, part.text, causes)
