"""A second look at the best candidates, by their texts. After filtering, and never instead of it.

Laws
    * A reranker sees permitted units only, each with the text that the truth gave out, and the
      frequencies of the caller's own corpus. Its scores are a function of those.
    * It orders what it was given: it adds nothing and drops nothing.

Theory of ``WordPairs``: what stands side by side in a question does so in its answer, too.
The ordered windows of the sequential dependence model (Metzler and Croft 2005), as a share: of
the weight of the question's neighbouring pairs (the geometric mean of their words' idf), that of
the pairs which a text has. Added to the fused score by ``WEIGHT``. Measured: DECISIONS, "A second
look by word pairs" and "Pairs stand side by side".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Final, Protocol

from retrieval.fallback.score import LexicalQuery
from retrieval.lexical import term_sequence
from retrieval.stores.rows import UnitRow

WEIGHT: Final = 0.2
DEPTH: Final = 20
"""Twice a page: what stands lower is not lifted onto it."""
_CHARACTERS_MAX: Final = 20_000
"""Of one text, so that a book costs what a chapter does."""


class Reranker(Protocol):
    """Orders candidates anew."""

    @property
    def depth(self) -> int:
        """How many candidates it wants to see; it gets more when more are to be shown."""
        ...

    def scores(
        self, query: str, asked: LexicalQuery, candidates: Sequence[tuple[UnitRow, float]], /
    ) -> list[float]:
        """A score in [0, 1] for each candidate, which comes with its fused score.

        ``asked`` are the question's terms as the caller's units weigh them. Blocking: it is
        called off the event loop. Raises IndexUnavailable when it cannot judge.
        """
        ...


class WordPairs:
    """By neighbouring words of the question. No model; 0.1 ms a paragraph."""

    depth: Final = DEPTH

    def scores(
        self, query: str, asked: LexicalQuery, candidates: Sequence[tuple[UnitRow, float]]
    ) -> list[float]:
        pairs = _pairs(query, asked)
        whole = sum(pairs.values())
        if whole == 0:
            return [fused for _, fused in candidates]
        return [
            (fused + WEIGHT * _weight_of(pairs, unit) / whole) / (1 + WEIGHT)
            for unit, fused in candidates
        ]


def _pairs(query: str, asked: LexicalQuery) -> dict[tuple[int, int], float]:
    """The question's pairs of neighbours, each with the geometric mean of its words' idf."""
    idf = dict(zip(asked.terms, asked.weights, strict=True))
    known = [next((one for one in forms if one in idf), None) for forms in term_sequence(query)]
    return {
        (left, right): math.sqrt(idf[left] * idf[right])
        for left, right in pairwise(known)
        if left is not None and right is not None and left != right
    }


def _weight_of(pairs: Mapping[tuple[int, int], float], unit: UnitRow) -> float:
    text = f"{unit.title}\n{unit.body}"[:_CHARACTERS_MAX]
    met = {
        pair
        for left, right in pairwise(term_sequence(text))
        for pair in product(left, right)
        if pair in pairs
    }
    return sum(weight for pair, weight in pairs.items() if pair in met)
