"""The proof that the table says what Casbin says.

Theory. ``policies.quotient`` parts all requests into regions in which the same rows match, so
that neither the rows nor Casbin can tell their members apart: one question per region decides
all of it, exactly, for conjunctions of set tests, and only for those. A region is put before a
Casbin that holds the rows which can match somewhere around it. That the other rows cannot is
not taken for granted: ``check_cells`` asks Casbin about every cell, alone, with every word of
its column. ``check_units_exhaustively`` asks about every state instead, of all rows at once.

Where a request may carry several words of one column, single words and pairs are asked: a
verdict over many words needs one that is allowed and none that is denied, so a difference
would show with two.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from policies.decision import Effect
from policies.errors import IncongruentPolicy
from policies.kinds import SHAPES, Kind, Shape
from policies.oracle import Oracle
from policies.quotient import Quotient, Region, blocks
from policies.rows import Row
from policies.table import DecisionTable, FacetSets, Relation, UnitTable
from policies.vocabulary import CONSENTS, FACETS, Vocabulary

_UNITS = SHAPES[Kind.UNITS]


class _Judge:
    """Casbin over some rows, made when it is first asked."""

    __slots__ = ("_oracle", "_rows", "_shape")

    def __init__(self, shape: Shape, rows: Sequence[Row]) -> None:
        self._shape, self._rows = shape, rows
        self._oracle: Oracle | None = None

    def allows(self, *request: str | frozenset[str]) -> bool:
        if self._oracle is None:
            self._oracle = Oracle(self._shape, self._rows)
        return self._oracle.allows(*request)


def check_cells(shape: Shape, rows: Sequence[Row], domains: Sequence[Sequence[str]]) -> int:
    """Raises IncongruentPolicy where Casbin reads a cell in another way than as a set of words.

    Each distinct cell of each column is asked about alone, with every word of the column, the
    other columns being met. Returns the number of questions.
    """
    asked = 0
    for axis, domain in enumerate(domains):
        for cell, row in {row.cells[axis]: row for row in rows}.items():
            oracle = Oracle(shape, [replace(row, effect=Effect.ALLOW)])
            words = [min(one) for one in row.cells]
            for word in domain:
                words[axis] = word
                asked += 1
                if oracle.allows(*words) is not (word in cell):
                    raise IncongruentPolicy(
                        f"Casbin reads a cell of {row.id} in another way: {word}"
                    )
    return asked


def check_units(vocabulary: Vocabulary, table: UnitTable, sets: FacetSets) -> int:
    """Raises IncongruentPolicy where table and Casbin differ, on the quotient of each profile.

    Returns the number of questions asked. Cost: 0.05 to 0.1 ms each.
    """
    domains = (*(vocabulary.live(facet) for facet in FACETS), CONSENTS)
    asked = check_cells(_UNITS, table.rows, (tuple(vocabulary.profiles), *domains))
    of_profile: dict[str, list[Row]] = defaultdict(list)
    for row in table.rows:
        for profile in row.cells[0]:
            of_profile[profile].append(row)
    # the column of profiles is left whole: each is looked at by itself
    quotient = Quotient(((), *domains), lambda rows: _Judge(_UNITS, rows))
    for profile in vocabulary.profiles:
        if any(table.readable[profile, consent] & ~sets.live for consent in CONSENTS):
            raise IncongruentPolicy(f"{profile} reads a class that no label can have")
        for region in quotient.regions(of_profile[profile]):
            asked += 1
            _check_region(profile, region, table, sets)
    return asked


def _check_region(profile: str, region: Region[_Judge], table: UnitTable, sets: FacetSets) -> None:
    _, *facets, consents = region.words
    allowed = region.judge.allows(profile, *(group[0] for group in facets), consents[0])
    box = sets.box(facets)
    for consent in consents:
        if table.readable[profile, consent] & box != (box if allowed else 0):
            state = " x ".join("|".join(group) for group in facets)
            raise IncongruentPolicy(f"table and Casbin disagree on {profile}, {consent}: {state}")


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


Choice = tuple[frozenset[str], ...]
"""Requests of one axis that no rule tells apart, the one to ask Casbin about first."""


def check_relation(relation: Relation, domains: Mapping[str, Sequence[str]]) -> int:
    """Raises IncongruentPolicy where a small kind's table and Casbin differ.

    Casbin is asked once per region. The table is asked about each member of what Casbin allows
    and about each of its own entries, since a wrong one may stand anywhere; what it has no
    entry for, it denies.
    """
    shape = relation.shape
    asked = check_cells(shape, relation.rows, [domains[axis] for axis in shape.axes])
    quotient = Quotient(
        [() if axis in shape.many else tuple(domains[axis]) for axis in shape.axes],
        lambda rows: _Judge(shape, rows),
    )
    allowed: set[tuple[str, ...]] = set()
    for region in quotient.regions(relation.rows):
        for combination in _combinations(shape, region, domains):
            asked += 1
            verdict = region.judge.allows(*(choice[0] for choice in combination))
            several = any(len(choice[0]) > 1 for choice in combination)
            if verdict and not several:
                allowed.update(itertools.product(*map(_words_of, combination)))
            elif several:
                for request in itertools.product(*combination):
                    _agree(relation, request, verdict)
            else:
                _agree(relation, tuple(choice[0] for choice in combination), verdict)
    for key in allowed | relation.entries.keys():
        _agree(relation, tuple(frozenset({word}) for word in key), key in allowed)
    return asked


def _agree(relation: Relation, request: tuple[frozenset[str], ...], verdict: bool) -> None:
    if relation.verdict(*request).allowed is not verdict:
        words = ", ".join("|".join(sorted(part)) for part in request)
        raise IncongruentPolicy(f"table and Casbin disagree on {relation.shape.kind}: {words}")


def _words_of(choice: Choice) -> Iterator[str]:
    for request in choice:
        yield from request


def _combinations(
    shape: Shape, region: Region[_Judge], domains: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Choice, ...]]:
    """The region as requests; what may carry several words is parted here, by what still counts."""
    axes: list[list[Choice]] = []
    for position, axis in enumerate(shape.axes):
        if axis not in shape.many:
            axes.append([tuple(frozenset({word}) for word in region.words[position])])
            continue
        groups = blocks(domains[axis], [row.cells[position] for row in region.rows])
        choices: list[Choice] = [tuple(frozenset({word}) for word in group) for group in groups]
        firsts = [group[0] for group in groups]
        choices += [(frozenset(pair),) for pair in itertools.combinations(firsts, 2)]
        axes.append(choices)
    return itertools.product(*axes)


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
