"""Which states of a unit each profile gains and loses, and which rules do it.

Theory. What a profile gains from OLD to NEW is what it loses from NEW to OLD, so one function
serves both. A gained state is allowed by some row of NEW, and in OLD either no row allowed it
or some row denied it. Hence an allow row of NEW that did not match it before, or a deny row
of OLD that does not match it any more, is always there to be named as its cause.

Ids of two revisions may differ when the lock was tampered with; states are then compared by
their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policies.decision import Effect, Scope
from policies.emit import postgres, qdrant
from policies.predicate import Box, boxes
from policies.review.reading import Reading
from policies.rows import Row
from policies.table import Verdict, members
from policies.vocabulary import CONSENTS, Vocabulary


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule, and what happened to it: ``added``, ``removed``, ``edited``, or ``vocabulary`` when
    the row stands as it was and the words around it changed."""

    rule: str
    how: str


@dataclass(frozen=True, slots=True)
class StateChange:
    """States that one profile gained (or lost) for one and the same causes."""

    gained: bool
    consents: tuple[str, ...]
    cells: Mapping[str, tuple[str, ...]]
    text: str
    states: int
    causes: tuple[Cause, ...]
    example: str


@dataclass(frozen=True, slots=True)
class Filters:
    """What the stores are asked for one profile: exact SQL with its values, and the filter.

    ``classes`` are (without consent, with consent); compartments and units are the caller's.
    """

    classes: tuple[tuple[int, ...], tuple[int, ...]]
    sql: str
    qdrant: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """``gained`` and ``lost`` count pairs of state and consent."""

    profile: str
    gained: int
    lost: int
    parts: tuple[StateChange, ...]
    before: Filters | None
    after: Filters | None


def compare(old: Reading, new: Reading) -> tuple[ProfileDiff, ...]:
    """The profiles that read something else than before, in the order of the vocabulary."""
    profiles = [*new.snapshot.vocabulary.profiles, *old.snapshot.vocabulary.profiles]
    found = []
    for profile in dict.fromkeys(profiles):
        gained = [*_Opened(old, new, gained=True).parts(profile)]
        lost = [*_Opened(new, old, gained=False).parts(profile)]
        if gained or lost:
            found.append(
                ProfileDiff(
                    profile,
                    _pairs(gained),
                    _pairs(lost),
                    (*gained, *lost),
                    filters(old, profile),
                    filters(new, profile),
                )
            )
    return tuple(found)


def filters(reading: Reading, profile: str) -> Filters | None:
    """What is pushed down for one profile that has no compartment of its own and one consented
    unit; None when there is no such profile."""
    if profile not in reading.snapshot.vocabulary.profiles:
        return None
    grant = reading.snapshot.grant([profile])
    scope = Scope(grant, (), (), ())
    return Filters(
        (grant.plain, grant.consented), postgres.predicate(scope, "u").sql, qdrant.filter(scope)
    )


def translated(bits: int, source: Vocabulary, target: Vocabulary) -> int:
    """The classes ``bits`` of one vocabulary as classes of another; unknown states left out."""
    shared = min(len(source.generations), len(target.generations))
    if source.generations[:shared] == target.generations[:shared]:
        return bits & ((1 << target.class_count) - 1)
    result = 0
    for class_id in members(bits):
        moved = target.class_id(source.facets_of(class_id))
        if moved >= 0:
            result |= 1 << moved
    return result


def verdict_text(found: Verdict) -> str:
    """``ALLOW (U-CUS-1)``, ``DENY (no rule)``, ``DENY (U-X-RISK)``."""
    if found.allowed:
        return f"ALLOW ({', '.join(found.allows)})"
    return f"DENY ({', '.join(found.denies) or 'no rule'})"


def _pairs(parts: list[StateChange]) -> int:
    return sum(part.states * len(part.consents) for part in parts)


class _Opened:
    """What is readable in ``after`` and was not in ``before``; all ids are those of ``after``."""

    def __init__(self, before: Reading, after: Reading, *, gained: bool) -> None:
        self._before, self._after, self._gained = before, after, gained
        self._was = {row.id: row for row in before.snapshot.table.units.rows}
        self._is = {row.id: row for row in after.snapshot.table.units.rows}

    def parts(self, profile: str) -> Iterator[StateChange]:
        none, granted = (self._bits(profile, consent) for consent in CONSENTS)
        for consents, bits in (
            (CONSENTS, none & granted),
            (CONSENTS[1:], granted & ~none),
            (CONSENTS[:1], none & ~granted),
        ):
            for causes, part in self._by_cause(profile, consents, bits):
                for box in boxes(self._after.snapshot.vocabulary, members(part)):
                    yield self._change(profile, consents, box, causes)

    def _bits(self, profile: str, consent: str) -> int:
        before = self._before.snapshot
        was = before.table.units.readable.get((profile, consent), 0)
        now = self._after.snapshot.table.units.readable.get((profile, consent), 0)
        return now & ~translated(was, before.vocabulary, self._after.snapshot.vocabulary)

    def _by_cause(
        self, profile: str, consents: tuple[str, ...], bits: int
    ) -> Iterator[tuple[tuple[Cause, ...], int]]:
        """The bits, parted by which rules touch them."""
        parts: dict[tuple[Cause, ...], int] = {(): bits} if bits else {}
        for rule in dict.fromkeys([*self._is, *self._was]):
            mask = 0
            for consent in consents:
                mask |= self._touched(rule, profile, consent)
            if not mask & bits:
                continue
            cause = Cause(rule, self._how(rule))
            touched = {(*causes, cause): part & mask for causes, part in parts.items()}
            untouched = {causes: part & ~mask for causes, part in parts.items()}
            parts = {causes: part for causes, part in (touched | untouched).items() if part}
        yield from parts.items()

    def _touched(self, rule: str, profile: str, consent: str) -> int:
        """States that this rule allows now and did not, or denied and does not any more."""
        is_allow, is_deny = _masks(self._after, self._is.get(rule), profile, consent)
        was_allow, was_deny = (
            translated(mask, self._before.snapshot.vocabulary, self._after.snapshot.vocabulary)
            for mask in _masks(self._before, self._was.get(rule), profile, consent)
        )
        return is_allow & ~was_allow | was_deny & ~is_deny

    def _how(self, rule: str) -> str:
        was, now = self._was.get(rule), self._is.get(rule)
        if was is None or now is None:
            return "added" if (was is None) is self._gained else "removed"
        return "vocabulary" if self._same(was, now) else "edited"

    def _same(self, was: Row, now: Row) -> bool:
        """Whether two rows say the same of the words that both revisions know."""
        if was.effect is not now.effect:
            return False
        vocabularies = [reading.snapshot.vocabulary for reading in (self._before, self._after)]
        axes = zip(*(_domains(vocabulary) for vocabulary in vocabularies), strict=True)
        return all(
            a & first & second == b & first & second
            for a, b, (first, second) in zip(was.cells, now.cells, axes, strict=True)
        )

    def _change(
        self, profile: str, consents: tuple[str, ...], box: Box, causes: tuple[Cause, ...]
    ) -> StateChange:
        vocabulary = self._after.snapshot.vocabulary
        state = {facet: cell[0] for facet, cell in box.cells.items()}
        verdicts = [
            verdict_text(
                reading.snapshot.table.units.rules(
                    profile, reading.snapshot.vocabulary.class_id(state), consents[0]
                )
            )
            for reading in (self._before, self._after)
        ]
        first, second = verdicts if self._gained else reversed(verdicts)
        return StateChange(
            self._gained,
            consents,
            box.cells,
            f"{box.text(vocabulary)} consent={'*' if consents == CONSENTS else consents[0]}",
            box.size,
            causes,
            f"{profile} reads {'/'.join(state.values())}, consent {consents[0]}:"
            f" {first} -> {second}",
        )


def _masks(reading: Reading, row: Row | None, profile: str, consent: str) -> tuple[int, int]:
    """What a row matches for one profile and consent, as (allowed, denied)."""
    if row is None or profile not in row.cells[0] or consent not in row.cells[-1]:
        return 0, 0
    box = reading.snapshot.table.units.boxes[row.id]
    return (box, 0) if row.effect is Effect.ALLOW else (0, box)


def _domains(vocabulary: Vocabulary) -> list[frozenset[str]]:
    facets = [frozenset(vocabulary.live(facet)) for facet in vocabulary.facets]
    return [frozenset(vocabulary.profiles), *facets, frozenset(CONSENTS)]
