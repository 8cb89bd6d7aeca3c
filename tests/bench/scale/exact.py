"""The whole corpus in memory, searched exhaustively: what a search should have found.

In place of the vector index it gives the product's own vector path every permitted unit that can
matter, so the two answers differ exactly where the index lost something.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from policies.decision import Scope
from retrieval.embed.quantise import SCALE, integers
from retrieval.stores.points import Candidate, DenseSearch, Search, SparseSearch
from tests.bench.scale.corpus import Batch, number_of

_SPARE: Final = 64
"""Beyond the cut, for float32 against exact scores; the caller scores anew and cuts itself."""

Scores = NDArray[np.float32]
Postings = tuple[NDArray[np.int32], NDArray[np.int32], Scores]
"""Terms, documents and weights, one row each, ordered by term."""


class Exhaustive:
    """See ``points.CandidateIndex``. Cost: 2 kB of memory a unit, one pass over it a question."""

    def __init__(self, size: int, dims: int) -> None:
        self._vectors: Final = np.zeros((size, dims), dtype=np.float32)
        self._classes: Final = np.full(size, -1, dtype=np.int32)
        self._ids: Final[list[UUID]] = []
        self._parts: Final[list[Postings]] = []
        self._postings: Postings | None = None

    def add(self, batch: Batch) -> None:
        """More of the corpus; before the first search."""
        first = len(self._ids)
        units = batch.units
        rows = slice(first, first + len(units))
        joined = integers(b"".join(one.vector for one in units)).reshape(len(units), -1)
        self._vectors[rows] = joined / SCALE
        self._classes[rows] = [one.class_id for one in units]
        self._ids.extend(one.id for one in units)
        terms = [term for one in units for term in one.terms]
        weights = [weight for one in units for weight in one.weights]
        documents = np.repeat(np.arange(first, first + len(units)), [len(u.terms) for u in units])
        self._parts.append(
            (
                np.array(terms, dtype=np.int32),
                documents.astype(np.int32),
                np.array(weights, dtype=np.float32),
            )
        )

    async def search(
        self, searches: Sequence[Search], scope: Scope, *, exclude: Collection[UUID] = ()
    ) -> list[list[Candidate]]:
        if exclude:
            raise ValueError("this index holds the truth of a run, and excludes nothing")
        permitted = np.isin(self._classes, np.array(scope.grant.plain))
        return [self._best(self._scores(one), permitted, one.limit) for one in searches]

    def nearest(self, vector: bytes, classes: Collection[int], many: int) -> list[UUID]:
        """The units of these classes nearest to a stored vector, best first."""
        permitted = np.isin(self._classes, np.array(list(classes)))
        best = self._best(self._scores(DenseSearch(vector, many)), permitted, many)
        return [one.unit_id for one in best[:many]]

    def forbidden(self, units: Collection[UUID], classes: Collection[int]) -> set[UUID]:
        """Those of these units that are of no such class, or not of the corpus at all."""
        allowed = frozenset(classes)
        return {one for one in units if not self._is_of(number_of(one), allowed)}

    def _is_of(self, number: int, classes: frozenset[int]) -> bool:
        return number < len(self._classes) and int(self._classes[number]) in classes

    def _scores(self, search: Search) -> Scores:
        if isinstance(search, DenseSearch):
            query = (integers(search.vector) / SCALE).astype(np.float32)
            return np.asarray(self._vectors @ query, dtype=np.float32)
        return self._worded(search)

    def _worded(self, search: SparseSearch) -> Scores:
        scores = np.full(len(self._classes), -np.inf, dtype=np.float32)
        terms, documents, weights = self._by_term()
        for term, weight in zip(search.terms, search.weights, strict=True):
            first, last = np.searchsorted(terms, [term, term + 1])
            met = documents[first:last]
            before = np.where(np.isinf(scores[met]), np.float32(0), scores[met])
            scores[met] = before + np.float32(weight) * weights[first:last]
        return scores

    def _by_term(self) -> Postings:
        if self._postings is None:
            terms, documents, weights = (
                np.concatenate(part) for part in zip(*self._parts, strict=True)
            )
            order = np.argsort(terms, kind="stable")
            self._postings = (terms[order], documents[order], weights[order])
            self._parts.clear()
        return self._postings

    def _best(self, scores: Scores, permitted: NDArray[np.bool_], limit: int) -> list[Candidate]:
        usable = np.flatnonzero(permitted & np.isfinite(scores))
        wanted = min(limit + _SPARE, len(usable))
        if wanted < len(usable):
            usable = usable[np.argpartition(-scores[usable], wanted)[:wanted]]
        best = usable[np.argsort(-scores[usable], kind="stable")]
        return [Candidate(self._ids[row], float(scores[row])) for row in best]
