"""Sets of classes as few products of values: the form in which people read a policy.

Theory. Values of a facet whose slices of the set are the same are interchangeable; after
folding them, the set is a handful of representatives. Merging representatives that differ
in one facet only gives disjoint products that cover exactly the set; the order in which
facets are merged matters, so all are tried and the shortest result is kept. Machines never
read this form: they get integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.vocabulary import FACETS, Vocabulary

_Cells = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A product of value sets: the states whose every facet is in its set."""

    cells: Mapping[str, tuple[str, ...]]
    size: int

    def __contains__(self, values: object) -> bool:
        """Whether one state, given as a map of facet values, lies in the box."""
        return isinstance(values, Mapping) and all(
            values.get(facet) in cell for facet, cell in self.cells.items()
        )

    def text(self, vocabulary: Vocabulary) -> str:
        """``visibility=public risk_class=low|standard kind=*-code authority=*``.

        ``*`` is every live value, ``*-code`` every live value but that one.
        """
        return " ".join(
            f"{facet}={cell_text(cell, vocabulary.live(facet))}"
            for facet, cell in self.cells.items()
        )


def cell_text(cell: tuple[str, ...], live: tuple[str, ...]) -> str:
    """One cell of a box: ``*``, ``*-code`` or its values joined by ``|``."""
    rest = [value for value in live if value not in cell]
    if not rest:
        return "*"
    return "*-" + "|".join(rest) if len(rest) * 3 < len(cell) else "|".join(cell)


def boxes(vocabulary: Vocabulary, class_ids: Iterable[int]) -> tuple[Box, ...]:
    """Disjoint boxes that hold exactly these classes, as few as merging finds, largest first.

    Cost: a few milliseconds for a thousand classes.
    """
    states = {tuple(vocabulary.facets_of(class_id).values()) for class_id in class_ids}
    folded = _fold(vocabulary, states)
    best: set[_Cells] | None = None
    for order in itertools.permutations(range(len(FACETS))):
        merged = folded
        for position in order:
            merged = _merge(merged, position)
        if best is None or (len(merged), sorted(merged)) < (len(best), sorted(best)):
            best = merged
        if len(best) <= 1:
            break
    return tuple(
        sorted(
            (_box(vocabulary, cells) for cells in best or ()),
            key=lambda box: (-box.size, tuple(box.cells.values())),
        )
    )


def _fold(vocabulary: Vocabulary, states: set[tuple[str, ...]]) -> set[_Cells]:
    """The states with interchangeable values of each facet joined."""
    blocks: list[dict[str, tuple[str, ...]]] = []
    for position, facet in enumerate(FACETS):
        slices: dict[str, set[tuple[str, ...]]] = {}
        for state in states:
            rest = state[:position] + state[position + 1 :]
            slices.setdefault(state[position], set()).add(rest)
        groups: dict[frozenset[tuple[str, ...]], list[str]] = {}
        for value in vocabulary.facets[facet]:
            if value in slices:
                groups.setdefault(frozenset(slices[value]), []).append(value)
        blocks.append({v: tuple(group) for group in groups.values() for v in group})
    return {
        tuple(blocks[position][value] for position, value in enumerate(state)) for state in states
    }


def _merge(cells: set[_Cells], position: int) -> set[_Cells]:
    groups: dict[_Cells, set[str]] = {}
    for cell in cells:
        groups.setdefault(cell[:position] + cell[position + 1 :], set()).update(cell[position])
    return {
        (*rest[:position], tuple(sorted(values)), *rest[position:])
        for rest, values in groups.items()
    }


def _box(vocabulary: Vocabulary, cells: _Cells) -> Box:
    size = 1
    ordered: dict[str, tuple[str, ...]] = {}
    for facet, cell in zip(FACETS, cells, strict=True):
        ordered[facet] = tuple(value for value in vocabulary.facets[facet] if value in cell)
        size *= len(cell)
    return Box(ordered, size)
