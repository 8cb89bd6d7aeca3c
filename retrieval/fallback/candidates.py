"""The vector path: from a query to the permitted units that answer it best.

Laws
    * The index proposes, the truth decides, *before* any score is stretched or fused: what
      the truth refuses leaves as a discrepancy and has no part in the result.
    * The result is a function of the permitted units alone. Each branch contributes its best
      ``POOL`` permitted units by exact score (refilled when some were refused, ties closed
      by unit id); both exact scores are computed for the union; the union is fused.
    * A reranker orders anew what was found; it sees the best of the union only, with their texts.
    * Nothing here catches a store's failure: a missing branch is a refusal, not a thinner list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import UUID

from retrieval.contract import Discrepancy
from retrieval.embed.ports import Embedder
from retrieval.embed.quantise import dots, pack
from retrieval.errors import IndexUnavailable, Store
from retrieval.fallback.fusion import DIGITS, Fusion, min_max
from retrieval.fallback.rerank import Reranker, WordPairs
from retrieval.fallback.score import LexicalQuery, lexical_query, lexical_score
from retrieval.lexical import folded_alternatives, query_terms
from retrieval.stores.points import CandidateIndex, DenseSearch, SparseSearch
from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import Evidence, UnitRow

POOL: Final = 50
"""Permitted candidates a branch contributes, at least ``k``."""

DENSE_WEIGHT: Final = 0.5
DENSE_WEIGHT_UNREAD: Final = 0.2
"""For a query in a language that the embedder was not trained on. nDCG@10 on Vietnamese XQuAD:
0.958 without the dense side, 0.960 at 0.2, 0.936 at 0.5 (English: 0.966, 0.974, 0.977)."""

WORD_PAIRS: Final = WordPairs()

Layer = Literal["vector_index", "lexical_index"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A permitted unit with its score, rounded, in [0, 1]."""

    unit: UnitRow
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """``hits`` best first, by (-score, unit id); ``discrepancies`` by unit id, one each."""

    hits: tuple[Hit, ...]
    discrepancies: tuple[Discrepancy, ...]


@dataclass(slots=True)
class _Checked:
    """What the truth said so far about the ids that the index proposed."""

    reader: TruthReader
    model: str
    exclude: frozenset[UUID]
    permitted: dict[UUID, Evidence] = field(default_factory=dict)
    refused: dict[UUID, Discrepancy] = field(default_factory=dict)

    async def check(self, proposed: Mapping[UUID, Layer]) -> None:
        unseen = proposed.keys() - self.permitted.keys() - self.refused.keys()
        if not unseen:
            return
        answer = await self.reader.judge(unseen, model=self.model, exclude=self.exclude)
        self.permitted.update(answer.units)
        for one in answer.discrepancies:
            # judge takes the vector index for the proposer; what it found out itself stands
            known = one.layer if one.layer != "vector_index" else proposed[one.unit_id]
            self.refused[one.unit_id] = one.model_copy(update={"layer": known})


async def search(
    query: str,
    reader: TruthReader,
    index: CandidateIndex,
    embedder: Embedder,
    *,
    k: int,
    exclude: Collection[UUID] = (),
    fusion: Fusion = min_max,
    reranker: Reranker | None = WORD_PAIRS,
) -> Found:
    """The ``k`` permitted units that answer the query best, with their bodies. Fewer than ``k``
    means that no other permitted unit shares a word or a direction with it.

    Raises ``IndexUnavailable`` when the index or the embedder does not answer and
    ``StoreUnavailable`` when the record of truth does not. Cost: one embedding, one call to the
    index for both branches (more only while the truth refuses candidates), three short queries.
    """
    vector, lexical = await _understood(query, reader, embedder)
    checked = _Checked(reader, embedder.name, frozenset(exclude))
    pool = max(POOL, k)
    near, worded = await _proposed(vector, lexical, checked, index, pool)
    dense, words = _exact(vector, lexical, {u: checked.permitted[u] for u in near | worded})
    union = {
        *_best(((u, dense[u]) for u in near if u in dense), pool),
        *_best(((u, words[u]) for u in worded if words[u] > 0), pool),
    }
    weight = DENSE_WEIGHT if embedder.reads(query) else DENSE_WEIGHT_UNREAD
    ranked = fusion(
        {unit: score for unit, score in dense.items() if unit in union},
        {unit: score for unit, score in words.items() if unit in union},
        weight if dense else 0.0,
    )[: k if reranker is None else max(k, reranker.depth)]
    shown = await reader.hydrate([unit for unit, _ in ranked], exclude=checked.exclude)
    checked.refused.update((one.unit_id, one) for one in shown.discrepancies)
    hits = [Hit(shown.units[unit], score) for unit, score in ranked if unit in shown.units]
    if reranker is not None and hits:
        hits = await asyncio.to_thread(_reranked, reranker, query, lexical, hits)
    return Found(
        hits=tuple(hits[:k]),
        discrepancies=tuple(checked.refused[unit] for unit in sorted(checked.refused)),
    )


def _reranked(
    reranker: Reranker, query: str, lexical: LexicalQuery, hits: Sequence[Hit]
) -> list[Hit]:
    scores = reranker.scores(query, lexical, [(hit.unit, hit.score) for hit in hits])
    anew = [Hit(hit.unit, round(score, DIGITS)) for hit, score in zip(hits, scores, strict=True)]
    return sorted(anew, key=lambda hit: (-hit.score, hit.unit.id))


async def _understood(
    query: str, reader: TruthReader, embedder: Embedder
) -> tuple[bytes | None, LexicalQuery]:
    """The query for both branches; the model computes while the database looks terms up."""
    embedding = asyncio.create_task(asyncio.to_thread(embedded, embedder, query))
    try:
        lexical = await _lexical(query, reader)
        return await embedding, lexical
    finally:
        embedding.cancel()


def embedded(embedder: Embedder, query: str) -> bytes | None:
    """The query's vector in stored form; ``None`` when the embedder could read nothing in it."""
    try:
        (row,) = embedder.embed([query])
        return pack(row) if row.any() else None
    except (ValueError, RuntimeError, MemoryError) as fault:
        raise IndexUnavailable(Store.EMBEDDER, type(fault).__name__) from fault


async def _lexical(query: str, reader: TruthReader) -> LexicalQuery:
    terms, alternatives = query_terms(query), folded_alternatives(query)
    frequencies = await reader.lexical_statistics({*terms, *alternatives.values()})
    return lexical_query(terms, alternatives, frequencies)


async def _proposed(
    vector: bytes | None,
    lexical: LexicalQuery,
    checked: _Checked,
    index: CandidateIndex,
    pool: int,
) -> tuple[set[UUID], set[UUID]]:
    """The permitted ids of each branch: at least its best ``pool``, or all there are.

    A branch asks again as long as refused candidates took places: with ``r`` refused among
    what it returned, asking for ``pool + r`` leaves ``pool`` places to permitted ones.
    """
    limits: dict[Layer, int] = {}
    if vector is not None:
        limits["vector_index"] = pool
    if lexical.terms:
        limits["lexical_index"] = pool
    open_branches = list(limits)
    found: dict[Layer, set[UUID]] = {"vector_index": set(), "lexical_index": set()}
    while open_branches:
        answers = await index.search(
            [
                DenseSearch(vector, limits[branch])
                if branch == "vector_index" and vector is not None
                else SparseSearch(lexical.terms, lexical.weights, limits[branch])
                for branch in open_branches
            ],
            checked.reader.scope,
            exclude=checked.exclude,
        )
        proposed: dict[UUID, Layer] = {}
        for branch, answer in zip(open_branches, answers, strict=True):
            for candidate in answer:
                proposed.setdefault(candidate.unit_id, branch)
        await checked.check(proposed)
        still_open: list[Layer] = []
        for branch, answer in zip(open_branches, answers, strict=True):
            ids = {candidate.unit_id for candidate in answer}
            found[branch] = ids & checked.permitted.keys()
            needed = pool + len(ids - checked.permitted.keys())
            if len(answer) >= limits[branch] and needed > limits[branch]:
                limits[branch] = needed
                still_open.append(branch)
        open_branches = still_open
    return found["vector_index"], found["lexical_index"]


def _exact(
    vector: bytes | None, lexical: LexicalQuery, units: Mapping[UUID, Evidence]
) -> tuple[dict[UUID, float], dict[UUID, float]]:
    """Both exact scores of these units, from the record of truth."""
    words = {unit: lexical_score(lexical, known.lexical) for unit, known in units.items()}
    if vector is None:
        return {}, words
    stored = {unit: known.vector for unit, known in units.items() if known.vector is not None}
    scores = dots(vector, list(stored.values()))
    return {unit: float(score) for unit, score in zip(stored, scores, strict=True)}, words


def _best(scores: Iterable[tuple[UUID, float]], pool: int) -> list[UUID]:
    ordered = sorted(scores, key=lambda item: (-item[1], item[0]))
    return [unit for unit, _ in ordered[:pool]]
