"""Who may use which route, give which consent, approve which label, ask what as an operator.

A request that carries several words of one axis (an operator's roles) is decided by all of
them. Theory: what a set of roles gains by a change, one of its roles gains or two of them
do, because an allow row needs one role and a deny row takes one. So single words and pairs
are tried, and a pair is told where neither of its words changes the same way alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from policies.kinds import Kind
from policies.review.change import Change, Direction, words
from policies.review.fold import products
from policies.review.reading import Reading

_COMPARED = (Kind.ROUTES, Kind.CONSENT, Kind.ADMIN, Kind.LABELS)
AND = "&"


def compare(old: Reading, new: Reading) -> Iterator[Change]:
    """Every tuple that is allowed on one side only, folded, with the rules on both sides."""
    for kind in _COMPARED:
        before, after = _allowed(old, kind), _allowed(new, kind)
        for direction, tuples in (
            (Direction.WIDENING, after - before),
            (Direction.NARROWING, before - after),
        ):
            yield from _changes(old, new, kind, direction, tuples)
            yield from _changes(
                old, new, kind, direction, set(_pairs(old, new, kind, direction, tuples))
            )


def _allowed(reading: Reading, kind: Kind) -> set[tuple[str, ...]]:
    entries = reading.snapshot.table.relations[kind].entries
    return {key for key, verdict in entries.items() if verdict.allowed}


def _pairs(
    old: Reading, new: Reading, kind: Kind, direction: Direction, alone: set[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """Requests with two words of a many-valued axis that change and of which neither is told."""
    shape = new.parsed.shapes[kind]
    relations = [reading.snapshot.table.relations[kind] for reading in (old, new)]
    wanted = (False, True) if direction is Direction.WIDENING else (True, False)
    keys = sorted({key for relation in relations for key in relation.entries})
    for position, axis in enumerate(shape.axes):
        if axis not in shape.many:
            continue
        for one, other in itertools.combinations(keys, 2):
            rest = [place for place in range(len(one)) if place != position]
            if any(one[place] != other[place] for place in rest) or {one, other} & alone:
                continue
            both = (*one[:position], f"{one[position]}{AND}{other[position]}", *one[position + 1 :])
            request = _request(both)
            if tuple(r.verdict(*request).allowed for r in relations) == wanted:
                yield both


def _request(key: tuple[str, ...]) -> list[frozenset[str]]:
    return [frozenset(word.split(AND)) for word in key]


def _changes(
    old: Reading, new: Reading, kind: Kind, direction: Direction, tuples: set[tuple[str, ...]]
) -> Iterator[Change]:
    axes = new.parsed.shapes[kind].axes
    for product in products(tuples):
        example = tuple(cell[0] for cell in product)
        sides = [
            reading.snapshot.table.relations[kind].verdict(*_request(example))
            for reading in (old, new)
        ]
        rules = [", ".join((*side.allows, *side.denies)) or "no rule" for side in sides]
        text = " ".join(f"{axis}={words(cell)}" for axis, cell in zip(axes, product, strict=True))
        sign = "+" if direction is Direction.WIDENING else "-"
        yield Change(direction, kind.value, f"{sign} {text}", f"{rules[0]} -> {rules[1]}")
