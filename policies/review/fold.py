"""Tuples of words as few products of word sets, for reading."""

from __future__ import annotations

import itertools
from collections.abc import Collection

Product = tuple[tuple[str, ...], ...]


def products(tuples: Collection[tuple[str, ...]]) -> tuple[Product, ...]:
    """Disjoint products that cover exactly the tuples, which all have one length.

    Every order of merging is tried and the shortest result kept. Cost: factorial in the
    length of a tuple, which is four at most here.
    """
    if not tuples:
        return ()
    single: set[Product] = {tuple((word,) for word in one) for one in tuples}
    best: set[Product] | None = None
    for order in itertools.permutations(range(len(next(iter(tuples))))):
        merged = single
        for position in order:
            merged = _merge(merged, position)
        if best is None or (len(merged), sorted(merged)) < (len(best), sorted(best)):
            best = merged
    return tuple(sorted(best or ()))


def _merge(cells: set[Product], position: int) -> set[Product]:
    groups: dict[Product, set[str]] = {}
    for cell in cells:
        groups.setdefault(cell[:position] + cell[position + 1 :], set()).update(cell[position])
    return {
        (*rest[:position], tuple(sorted(values)), *rest[position:])
        for rest, values in groups.items()
    }
