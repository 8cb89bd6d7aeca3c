"""The proof that the table says what Casbin says.

Theory (quotient). Take the rows that can match one profile. Two values of a facet which
each of these rows' cells either both contains or both lacks are interchangeable: no row
tells them apart, so neither does Casbin. Hence one question per combination of such
blocks decides all states of the product, exactly, for conjunctions of set tests, and
only for those. ``exhaustive`` asks about every state instead.

For the small kinds the same blocks serve. Where a request may carry several words of one
column, single words and pairs are asked: a verdict over many words needs one that is
allowed and none that is denied, so a difference would show with two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from policies.errors import IncongruentPolicy
from policies.kinds import SHAPES, Kind
from policies.oracle import Oracle
from policies.table import DecisionTable, FacetSets, Relation, UnitTable
from policies.vocabulary import CONSENTS, FACETS, Vocabulary


def blocks(values: Sequence[str], cells: Sequence[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    """The values, grouped by which of the cells contain them."""
    groups: dict[tuple[bool, ...], list[str]] = {}
    for value in values:
        groups.setdefault(tuple(value in cell for cell in cells), []).append(value)
    return tuple(tuple(group) for group in groups.values())


def check_units(vocabulary: Vocabulary, table: UnitTable, sets: FacetSets) -> int:
    """Raises IncongruentPolicy where table and Casbin differ, on the quotient of each profile.

    Returns the number of questions asked. Cost: about 0.1 ms each.
    """
    asked = 0
    for profile in vocabulary.profiles:
        if any(table.readable[profile, consent] & ~sets.live for consent in CONSENTS):
            raise IncongruentPolicy(f"{profile} reads a class that no label can have")
        rows = [row for row in table.rows if profile in row.cells[0]]
        oracle = Oracle(SHAPES[Kind.UNITS], rows)
        cells = tuple(zip(*(row.cells for row in rows), strict=True)) or ((),) * (len(FACETS) + 2)
        facets = [
            blocks(vocabulary.live(facet), cell)
            for facet, cell in zip(FACETS, cells[1:-1], strict=True)
        ]
        for consents in blocks(CONSENTS, cells[-1]):
            for block in itertools.product(*facets):
                asked += 1
                allowed = oracle.allows(profile, *(group[0] for group in block), consents[0])
                box = sets.box(block)
                for consent in consents:
                    inside = table.readable[profile, consent] & box
                    if inside != (box if allowed else 0):
                        state = " x ".join("|".join(group) for group in block)
                        raise IncongruentPolicy(
                            f"table and Casbin disagree on {profile}, {consent}: {state}"
                        )
    return asked


def check_units_exhaustively(
    vocabulary: Vocabulary, table: UnitTable, progress: Callable[[int], None]
) -> int:
    """The same over every state, profile and consent. Cost: minutes; returns the questions."""
    oracle = Oracle(SHAPES[Kind.UNITS], table.rows)
    asked = 0
    for profile, consent in itertools.product(vocabulary.profiles, CONSENTS):
        bits = table.readable[profile, consent]
        for class_id, values in vocabulary.classes:
            readable = bool(bits >> class_id & 1)
            if vocabulary.is_retired(class_id):
                if readable:
                    raise IncongruentPolicy(f"retired class `{class_id}` is readable by {profile}")
                continue
            asked += 1
            if oracle.allows(profile, *values, consent) is not readable:
                raise IncongruentPolicy(
                    f"table and Casbin disagree on {profile}, {consent}: {' '.join(values)}"
                )
        progress(asked)
    return asked


def check_relation(relation: Relation, domains: Mapping[str, Sequence[str]]) -> int:
    """Raises IncongruentPolicy where a small kind's table and Casbin differ.

    Casbin is asked once per combination of blocks, the table about each of its members:
    a wrong entry may stand anywhere in a block.
    """
    oracle = Oracle(relation.shape, relation.rows)
    asked = 0
    for combination in _combinations(relation, domains):
        asked += 1
        allowed = oracle.allows(*(choice[0] for choice in combination))
        for request in itertools.product(*combination):
            if relation.verdict(*request).allowed is not allowed:
                words = ", ".join("|".join(sorted(part)) for part in request)
                raise IncongruentPolicy(
                    f"table and Casbin disagree on {relation.shape.kind}: {words}"
                )
    return asked


Choice = tuple[frozenset[str], ...]
"""Requests of one axis that no rule tells apart, the one to ask Casbin about first."""


def _combinations(
    relation: Relation, domains: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Choice, ...]]:
    axes: list[list[Choice]] = []
    for position, axis in enumerate(relation.shape.axes):
        cells = [row.cells[position] for row in relation.rows]
        groups = blocks(domains[axis], cells)
        choices: list[Choice] = [tuple(frozenset({word}) for word in group) for group in groups]
        if axis in relation.shape.many:
            firsts = [group[0] for group in groups]
            choices += [(frozenset(pair),) for pair in itertools.combinations(firsts, 2)]
        axes.append(choices)
    return iter(itertools.product(*axes))


def check(
    vocabulary: Vocabulary,
    table: DecisionTable,
    sets: FacetSets,
    domains: Mapping[Kind, Mapping[str, Sequence[str]]],
) -> int:
    """All kinds on their quotients. Returns the number of questions asked of Casbin."""
    asked = check_units(vocabulary, table.units, sets)
    for kind, relation in table.relations.items():
        asked += check_relation(relation, domains[kind])
    return asked
