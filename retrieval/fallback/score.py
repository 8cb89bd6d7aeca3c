"""The scores that leave: computed here, from the record of truth, and never by an engine.

Theory
    dense(q, u)   = dot of the two stored integer vectors: exact.
    lexical(q, u) = sum over the shared terms of idf(term) * weight(term, u), in the order of
                    the term ids, in float64: the same bits on every run.
    idf(term)     = ln(1 + (N - df + 0.5) / (df + 0.5)), where N and df count the units that
                    *this caller* may read. It travels in the query, so the engine needs no
                    frequencies, and no hidden unit has a part in any score.

This module is pure: no store, no policy, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from retrieval.stores.rows import Frequencies, LexicalRow


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """The terms of a query that the caller's units have (sorted), each with its idf."""

    terms: tuple[int, ...]
    weights: tuple[float, ...]


def lexical_query(
    terms: Iterable[int], alternatives: Mapping[int, int], frequencies: Frequencies
) -> LexicalQuery:
    """The query as this caller's units weigh it.

    A term that none of them has is dropped, or replaced by its folded alternative if that
    occurs. Weights are rounded to float32, which is what the engine computes with.
    """
    known = frequencies.by_term
    chosen = set()
    for term in terms:
        if known.get(term, 0) > 0:
            chosen.add(term)
        elif known.get(alternatives.get(term, -1), 0) > 0:
            chosen.add(alternatives[term])
    ordered = tuple(sorted(chosen))
    idf = (_idf(frequencies.documents, known[term]) for term in ordered)
    return LexicalQuery(ordered, tuple(float(np.float32(weight)) for weight in idf))


def lexical_score(query: LexicalQuery, row: LexicalRow) -> float:
    """The lexical score of one unit; 0 when it shares no term. Cost: linear in the unit."""
    weight_of = dict(zip(row.terms, row.weights, strict=True))
    score = 0.0
    for term, weight in zip(query.terms, query.weights, strict=True):
        score += weight * weight_of.get(term, 0.0)
    return score


def _idf(documents: int, frequency: int) -> float:
    return math.log1p(max(0.0, documents - frequency + 0.5) / (frequency + 0.5))
