"""Filtered search finds what exact search over the permitted points finds, however few those are.

Vectors are drawn around real ones (shared/data/vectors): random directions would make every
index look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval.embed.quantise import dots, pack
from retrieval.stores.points import IndexLabel, IndexPoint
from retrieval.stores.qdrant import QdrantIndex
from tests.retrieval.index.collections import scope, using
from tests.services import VectorService

DIMS = 512
TERMS = 20_000
SHARES = (0.001, 0.01, 0.1, 0.5, 1.0)
K = 10

Rows = NDArray[np.float32]


def drawn(real: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Vectors near real ones: each is one of them, turned by noise of its own."""
    rows = real[rng.integers(0, len(real), count)] + rng.normal(0, 0.02, (count, real.shape[1]))
    found: Rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return found


def lexical(rng: np.random.Generator, terms: int) -> tuple[list[int], list[float]]:
    """Words as texts have them, a few of them often; weights that the engine holds exactly."""
    chosen = sorted({int(one) % TERMS for one in rng.zipf(1.2, terms)})
    return chosen, [float(np.float32(x)) for x in rng.uniform(0.2, 2.2, len(chosen))]


def classes(count: int, rng: np.random.Generator) -> list[int]:
    """One class a point, so that classes below ``n`` hold the n-th part of ``SHARES``."""
    level = np.searchsorted(np.array(SHARES), rng.random(count))
    for place, rank in enumerate(rng.permutation(count)[: len(SHARES)]):
        level[rank] = place  # no share is empty, however small the corpus
    return [int(one) for one in level]


def points(real: Rows, count: int, rng: np.random.Generator) -> list[IndexPoint]:
    rows, levels = drawn(real, count, rng), classes(count, rng)
    return [
        IndexPoint(
            IndexLabel(UUID(int=number + 1), 1, levels[number], "*", "*"),
            pack(rows[number]),
            *lexical(rng, 60),
        )
        for number in range(count)
    ]


def overlap(best: Sequence[UUID], found: set[UUID]) -> float:
    return len(set(best) & found) / len(best)


def dense_best(query: bytes, permitted: Sequence[IndexPoint]) -> list[UUID]:
    scores = dots(query, [one.vector for one in permitted if one.vector is not None])
    ids = [one.label.unit_id for one in permitted]
    return [unit for _, unit in sorted(zip(-scores, ids, strict=True))[:K]]


def sparse_best(query: dict[int, float], permitted: Sequence[IndexPoint]) -> list[UUID]:
    scored = []
    for one in permitted:
        weights = dict(zip(one.terms, one.weights, strict=True))
        score = sum(weight * weights.get(term, 0.0) for term, weight in query.items())
        if score > 0:
            scored.append((-score, one.label.unit_id))
    return [unit for _, unit in sorted(scored)[:K]]


@pytest.mark.parametrize(
    ("count", "questions"),
    [
        (1_500, 10),
        pytest.param(20_000, 40, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)]),
    ],
)
def test_recall_at_ten_is_that_of_exact_search(
    sidecar: VectorService, shared_data: Path, count: int, questions: int
) -> None:
    """At 0.1, 1, 10, 50 and 100 % readable, at least 0.99 in both branches."""
    rng = np.random.default_rng(9)
    source = shared_data / "vectors" / "use-multilingual-v3.npy"
    real = np.load(source, mmap_mode="r")[:4_000].astype(np.float32)
    corpus = points(real, count, rng)
    asked = [pack(row) for row in drawn(real, questions, rng)]
    worded = [lexical(rng, 6) for _ in range(questions)]

    async def run(index: QdrantIndex) -> None:
        for start in range(0, count, 500):
            await index.upsert(corpus[start : start + 500])
        for level, share in enumerate(SHARES):
            mine = scope(*range(level + 1))
            permitted = [one for one in corpus if one.label.class_id <= level]
            assert len(permitted) >= share * count * 0.5
            allowed = {one.label.unit_id for one in permitted}
            dense, sparse = [], []
            for vector, (terms, weights) in zip(asked, worded, strict=True):
                near = {c.unit_id for c in await index.dense(vector, mine, limit=K)}
                words = {c.unit_id for c in await index.sparse(terms, weights, mine, limit=K)}
                assert near | words <= allowed
                dense.append(overlap(dense_best(vector, permitted), near))
                best = sparse_best(dict(zip(terms, weights, strict=True)), permitted)
                if best:
                    sparse.append(overlap(best, words))
            assert np.mean(dense) >= 0.99, share
            assert np.mean(sparse) >= 0.99, share

    using(sidecar, run, dims=DIMS)
