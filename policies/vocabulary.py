"""The closed words of policy and the integer that names each state of a governed object.

A *class* is one tuple of six facet values. Its id comes from ``rules/classes.lock``,
which is append-only, so that an edit of the vocabulary never changes a stored id:

    generation N lists every value of every facet so far;
    the tuples that are new in generation N get the next free ids,
    in lexicographic order of the values' positions in that generation's lists.

Generation 1 is therefore plain mixed radix, and appending one value to one facet only
adds ids behind the last one. A retired value stays in the lock and keeps its ids; labels
that use it have class -1 from then on, because ``class_id`` no longer knows it.

This module does not know rules, files, Casbin, SQL or HTTP.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from policies.decision import UNCLASSED
from policies.errors import UnknownClass, UnorderedFacet

FACETS: Final = (
    "visibility",
    "readiness",
    "publication_state",
    "risk_class",
    "authority",
    "kind",
)
"""The six facets, in the order in which every tuple and every id counts them."""

ORDERED: Final = ("visibility", "publication_state", "risk_class")
"""Facets with a declared order, loosest first: of two inherited values the stricter wins."""

RESERVED: Final = frozenset({"all", "any", "none", "anonymous", "caller"})
"""Words that mean something in the files themselves and can therefore name nothing."""

CONSENTS: Final = ("none", "granted")
CLASS_LIMIT: Final = 32_768
"""Ids are stored as smallint."""

Lists = tuple[tuple[tuple[str, ...], ...], ...]
"""By generation and facet, the values."""
Generation = Mapping[str, tuple[str, ...]]
"""All values of every facet, as of one generation of the lock."""


def enumerate_classes(generations: Sequence[Generation]) -> tuple[tuple[str, ...], ...]:
    """Every facet tuple that ever had an id; the position is the id.

    Cost: one pass over the product of each generation (10,800 tuples by default), once for the
    same generations: the vocabulary changes less often than a policy is read.
    """
    return classes_of(listed(generations))


def listed(generations: Sequence[Generation]) -> Lists:
    """The values of every generation, facet by facet: what all ids follow from."""
    return tuple(tuple(one[facet] for facet in FACETS) for one in generations)


@functools.lru_cache(maxsize=8)
def classes_of(generations: Lists) -> tuple[tuple[str, ...], ...]:
    """``enumerate_classes`` of what was ``listed``."""
    known: dict[tuple[str, ...], None] = {}
    for lists in generations:
        known |= dict.fromkeys(itertools.product(*lists))
    return tuple(known)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All words that rules, labels and requests may use.

    ``facets`` keeps the order of the lock and still contains retired values (``retired``
    names them). ``profiles`` maps a profile to the audience whose database role serves it.
    ``orders`` lists the values of each ordered facet, loosest first.
    """

    facets: Mapping[str, tuple[str, ...]]
    retired: Mapping[str, frozenset[str]]
    orders: Mapping[str, tuple[str, ...]]
    compartments: tuple[str, ...]
    audiences: tuple[str, ...]
    profiles: Mapping[str, str]
    roles: tuple[str, ...]
    tasks: tuple[str, ...]
    tools: tuple[str, ...]
    purposes: tuple[str, ...]
    ttls: tuple[str, ...]
    generations: tuple[Generation, ...]
    _tuples: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)
    _ids: dict[tuple[str, ...], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tuples = enumerate_classes(self.generations)
        ids = dict(zip(tuples, itertools.count()))
        if any(self.retired[facet] for facet in FACETS):
            ids = {values: number for values, number in ids.items() if not self._spent(values)}
        object.__setattr__(self, "_tuples", tuples)
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def restored(
        cls,
        fields: Mapping[str, Any],
        tuples: tuple[tuple[str, ...], ...],
        ids: dict[tuple[str, ...], int],
    ) -> Vocabulary:
        """The vocabulary that another process took apart, without counting its classes anew."""
        made = cls.__new__(cls)
        for name, value in {**fields, "_tuples": tuples, "_ids": ids}.items():
            object.__setattr__(made, name, value)
        return made

    def _spent(self, values: tuple[str, ...]) -> bool:
        return any(
            value in self.retired[facet] for facet, value in zip(FACETS, values, strict=True)
        )

    @property
    def class_count(self) -> int:
        """How many ids exist, retired ones included: every bit mask is this long."""
        return len(self._tuples)

    @property
    def classes(self) -> Sequence[tuple[int, tuple[str, ...]]]:
        """``(id, values in facet order)`` of every class, retired ones included."""
        return tuple(enumerate(self._tuples))

    def is_retired(self, class_id: int) -> bool:
        """Whether a class uses a retired value, so that no label may have it any more."""
        return self._values(class_id) not in self._ids

    def class_id(self, values: Mapping[str, object]) -> int:
        """The id of a label, or -1 for anything that is not exactly one known value per facet.

        Missing, null, empty, mis-cased, padded, a list, an object or an unknown word: -1,
        which no list contains. Cost: one dictionary lookup.
        """
        words = tuple(values.get(facet) for facet in FACETS)
        if not all(isinstance(word, str) for word in words):
            return UNCLASSED
        return self._ids.get(words, UNCLASSED)  # type: ignore[arg-type]

    def facets_of(self, class_id: int) -> Mapping[str, str]:
        """The values behind an id. Raises UnknownClass for -1 and for ids never given."""
        return dict(zip(FACETS, self._values(class_id), strict=True))

    def live(self, facet: str) -> tuple[str, ...]:
        """The values of a facet that rules and labels may still use."""
        return tuple(v for v in self.facets[facet] if v not in self.retired[facet])

    def stricter(self, facet: str, a: str, b: str) -> str:
        """Which of two inherited values holds. Raises UnorderedFacet where no order is declared."""
        order = self.orders.get(facet)
        if order is None:
            raise UnorderedFacet(f"facet `{facet}` has no declared order")
        if a not in order or b not in order:
            raise UnorderedFacet(f"`{a}` or `{b}` is not a value of facet `{facet}`")
        return max(a, b, key=order.index)

    def _values(self, class_id: int) -> tuple[str, ...]:
        if not 0 <= class_id < len(self._tuples):
            raise UnknownClass(f"class `{class_id}` was never given")
        return self._tuples[class_id]
