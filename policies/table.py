"""The decision table: what the rules say, computed by set algebra over the rows.

Theory. A row is a conjunction of set tests, so the states that it matches are a box: the
product of its cells. A unit state is a class id, a set of states is an integer whose bit
``i`` stands for class ``i``, and

    readable(profile, consent) = union of the allow boxes  minus  union of the deny boxes.

The other kinds are small relations: an entry per tuple of single words, with the allow and
deny rules that match it. A request that carries several words in one column (all the
claims of a caller) matches a row exactly when one of its tuples does, so its verdict is the
union over its tuples. An absent entry means that no rule speaks: denied.

This module does not know Casbin, which it must equal (``policies.congruence``).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies.decision import Decision, Effect, PolicyDigest
from policies.kinds import Kind, Shape
from policies.rows import Row
from policies.stored import StoredRows
from policies.vocabulary import CONSENTS, FACETS, Lists, Vocabulary, classes_of, listed

_DIGITS: Final = bytes.maketrans(b"\x00\x01", b"01")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rules that match one request, in file order."""

    allows: tuple[str, ...]
    denies: tuple[str, ...]

    @property
    def allowed(self) -> bool:
        return bool(self.allows) and not self.denies


SILENCE = Verdict((), ())


@dataclass(frozen=True, slots=True)
class Relation:
    """One small decision kind, precomputed."""

    shape: Shape
    rows: Sequence[Row]
    entries: Mapping[tuple[str, ...], Verdict]

    def verdict(self, *request: frozenset[str]) -> Verdict:
        """The rules that match a request, one set of words per axis.

        Cost: one lookup per tuple of the request; claims are few.
        """
        allows: dict[str, None] = {}
        denies: dict[str, None] = {}
        for key in itertools.product(*map(sorted, request)):
            entry = self.entries.get(key, SILENCE)
            allows |= dict.fromkeys(entry.allows)
            denies |= dict.fromkeys(entry.denies)
        return Verdict(tuple(sorted(allows)), tuple(sorted(denies)))

    def decide(self, value: str, digest: PolicyDigest, *request: frozenset[str]) -> Decision:
        """The verdict as a decision on ``value``."""
        found = self.verdict(*request)
        if found.allowed:
            return Decision(Effect.ALLOW, value, "rule", found.allows, digest)
        reason = "denied_by_rule" if found.denies else "no_rule"
        return Decision(Effect.DENY, "", reason, found.denies, digest)


def relation(shape: Shape, rows: Sequence[Row]) -> Relation:
    """A small kind as a lookup table. Cost: the product of each row's cells."""
    allows: dict[tuple[str, ...], list[str]] = {}
    denies: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        side = allows if row.effect is Effect.ALLOW else denies
        for key in itertools.product(*map(sorted, row.cells)):
            side.setdefault(key, []).append(row.id)
    return Relation(
        shape,
        tuple(rows),
        {
            key: Verdict(tuple(allows.get(key, ())), tuple(denies.get(key, ())))
            for key in allows.keys() | denies.keys()
        },
    )


@dataclass(frozen=True, slots=True)
class UnitTable:
    """Readable classes per (profile, consent), as bit sets. ``boxes`` holds each row's own.

    ``profiles`` maps every profile to its audience, as in the vocabulary.
    """

    class_count: int
    profiles: Mapping[str, str]
    rows: Sequence[Row]
    boxes: Mapping[str, int]
    readable: Mapping[tuple[str, str], int]

    def classes(self, profile: str, consent: str) -> tuple[int, ...]:
        """The readable class ids, sorted."""
        return members(self.readable[profile, consent])

    def rules(self, profile: str, class_id: int, consent: str) -> Verdict:
        """The rules that match one state: why it is readable or not. Cost: one pass over rows."""
        matching = [
            row
            for row, box in self._naming(profile)
            if consent in row.cells[-1] and class_id >= 0 and box >> class_id & 1
        ]
        return Verdict(
            tuple(row.id for row in matching if row.effect is Effect.ALLOW),
            tuple(row.id for row in matching if row.effect is Effect.DENY),
        )

    def _naming(self, profile: str) -> Iterable[tuple[Row, int]]:
        if isinstance(self.rows, StoredRows):
            return self.rows.naming(profile)
        return ((row, self.boxes[row.id]) for row in self.rows if profile in row.cells[0])


@functools.lru_cache(maxsize=8)
def _counted(
    generations: Lists, retired: tuple[frozenset[str], ...]
) -> tuple[int, Mapping[tuple[str, str], int]]:
    """The classes that labels may still have, and those of every facet value, retired ones
    left out."""
    classes = classes_of(generations)
    live = (1 << len(classes)) - 1
    sets: dict[tuple[str, str], int] = {}
    columns = zip(*classes, strict=True)
    for facet, spent, column in zip(FACETS, retired, columns, strict=True):
        for value in dict.fromkeys(column):
            bits = _bits(map(value.__eq__, column))
            if value in spent:
                live &= ~bits
            else:
                sets[facet, value] = bits
    return live, {key: bits & live for key, bits in sets.items()}


def _bits(flags: Iterable[bool]) -> int:
    """The flag of class ``n`` as bit ``n``."""
    text = bytes(flags).translate(_DIGITS)[::-1]
    return int(text or b"0", 2)


class FacetSets:
    """Sets of classes by facet value, as bit sets: the algebra's atoms.

    Cost: 5 ms for 10,800 classes, next to nothing for those that were counted before.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        retired = tuple(vocabulary.retired[facet] for facet in FACETS)
        self.live, self._sets = _counted(listed(vocabulary.generations), retired)

    def box(self, cells: Sequence[Iterable[str]]) -> int:
        """The classes whose every facet value is in the cell of that facet."""
        result = self.live
        for facet, cell in zip(FACETS, cells, strict=True):
            union = 0
            for value in cell:
                union |= self._sets.get((facet, value), 0)
            result &= union
        return result


def unit_table(vocabulary: Vocabulary, rows: Sequence[Row], sets: FacetSets) -> UnitTable:
    """The readable classes of every profile. Cost: a few ms for 10,800 classes."""
    boxes = {row.id: sets.box(row.cells[1:-1]) for row in rows}
    readable: dict[tuple[str, str], int] = {}
    for profile, consent in itertools.product(vocabulary.profiles, CONSENTS):
        opened = closed = 0
        for row in rows:
            if profile in row.cells[0] and consent in row.cells[-1]:
                if row.effect is Effect.ALLOW:
                    opened |= boxes[row.id]
                else:
                    closed |= boxes[row.id]
        readable[profile, consent] = opened & ~closed
    return UnitTable(vocabulary.class_count, vocabulary.profiles, tuple(rows), boxes, readable)


def members(bits: int) -> tuple[int, ...]:
    """The positions of the set bits, ascending."""
    text = bin(bits)[:1:-1]
    found: list[int] = []
    position = text.find("1")
    while position >= 0:
        found.append(position)
        position = text.find("1", position + 1)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DecisionTable:
    """All kinds, compiled."""

    units: UnitTable
    relations: Mapping[Kind, Relation]
