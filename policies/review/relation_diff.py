"""Who may use which route, and who may give which consent: pairs gained and lost."""

from __future__ import annotations

from collections.abc import Iterator

from policies.kinds import Kind
from policies.review.change import Change, Direction, words
from policies.review.fold import products
from policies.review.reading import Reading

_COMPARED = (Kind.ROUTES, Kind.CONSENT)


def compare(old: Reading, new: Reading) -> Iterator[Change]:
    """Every tuple that is allowed on one side only, folded, with the rules on both sides."""
    for kind in _COMPARED:
        before, after = _allowed(old, kind), _allowed(new, kind)
        for direction, tuples in (
            (Direction.WIDENING, after - before),
            (Direction.NARROWING, before - after),
        ):
            yield from _changes(old, new, kind, direction, tuples)


def _allowed(reading: Reading, kind: Kind) -> set[tuple[str, ...]]:
    entries = reading.snapshot.table.relations[kind].entries
    return {key for key, verdict in entries.items() if verdict.allowed}


def _changes(
    old: Reading, new: Reading, kind: Kind, direction: Direction, tuples: set[tuple[str, ...]]
) -> Iterator[Change]:
    axes = new.parsed.shapes[kind].axes
    for product in products(tuples):
        example = tuple(cell[0] for cell in product)
        sides = [
            reading.snapshot.table.relations[kind].verdict(*(frozenset({word}) for word in example))
            for reading in (old, new)
        ]
        rules = [", ".join((*side.allows, *side.denies)) or "no rule" for side in sides]
        text = " ".join(f"{axis}={words(cell)}" for axis, cell in zip(axes, product, strict=True))
        sign = "+" if direction is Direction.WIDENING else "-"
        yield Change(direction, kind.value, f"{sign} {text}", f"{rules[0]} -> {rules[1]}")
