"""A second look orders what was found, by what the caller may read, and drops nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.errors import IndexUnavailable, Store
from retrieval.fallback.rerank import Reranker, WordPairs
from retrieval.fallback.score import LexicalQuery
from retrieval.lexical import query_terms
from retrieval.stores.rows import Facets, UnitRow
from tests.retrieval.fallback.test_non_interference import sentence
from tests.retrieval.fallback.world import world
from tests.retrieval.truth import Unit
from tests.services import Database, VectorService

WORDS: Final = ("refund", "webhook", "retry", "hoàn", "tiền", "退款")
TEXT = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
ENACTED: Final = Facets("public", "published", "published", "low", "enacted", "faq")


def unit(number: int, body: str) -> UnitRow:
    return UnitRow(
        id=UUID(int=number), canonical_address=f"u/{number}", revision=1, title="", body=body,
        class_id=1, tenant="*", jurisdiction="*", facets=ENACTED, lifecycle_stage="other",
        language="", source="", active_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip


def asked(query: str) -> LexicalQuery:
    terms = tuple(query_terms(query))
    return LexicalQuery(terms, tuple(1.0 + number for number in range(len(terms))))


def scores(query: str, *bodies: str, fused: float = 0.5) -> list[float]:
    candidates = [(unit(number, body), fused) for number, body in enumerate(bodies)]
    return WordPairs().scores(query, asked(query), candidates)


def test_neighbours_of_a_question_count_where_they_stand_side_by_side_and_in_order() -> None:
    """Same words, same fused score; only their places differ."""
    adjacent, near, backwards = scores(
        "refund webhook", "the refund webhook", "refund by webhook", "webhook refund"
    )
    assert adjacent > near == backwards


def test_a_word_typed_without_marks_is_beside_what_it_means() -> None:
    """The query asks for the folded form; the document has both."""
    there, not_there = scores("hoan tien", "hoàn tiền cho khách", "tiền được hoàn lại")
    assert there > not_there


def test_scripts_without_spaces_have_neighbours_too() -> None:
    there, not_there = scores("退款政策", "我们的退款政策", "政策和退款")
    assert there > not_there


@given(TEXT, st.lists(TEXT, max_size=6), st.floats(0, 1))
def test_scores_stay_in_range_one_a_candidate(query: str, bodies: list[str], fused: float) -> None:
    """And a candidate's score does not depend on the others."""
    together = scores(query, *bodies, fused=fused)
    assert together == [scores(query, body, fused=fused)[0] for body in bodies]
    assert all(0 <= score <= 1 and not math.isnan(score) for score in together)


def test_a_question_of_one_word_is_left_as_it_was() -> None:
    """No pairs, no change: not even of scale."""
    assert scores("refund", "refund", "webhook", fused=0.25) == [0.25, 0.25]


def test_a_book_is_looked_at_in_part() -> None:
    """Its first pages; what stands behind them is not found, and costs nothing."""
    first, last = scores(
        "refund webhook", "refund webhook " + "x " * 40_000, "x " * 40_000 + "refund webhook"
    )
    assert first > last


class Backwards:
    """A reranker of somebody else's, that likes the last best and notes what it was shown."""

    depth = 7

    def __init__(self) -> None:
        self.seen: list[list[UUID]] = []

    def scores(
        self, _query: str, _asked: LexicalQuery, candidates: Sequence[tuple[UnitRow, float]], /
    ) -> list[float]:
        self.seen.append([unit.id for unit, _ in candidates])
        return [place / len(candidates) for place in range(len(candidates))]


class Broken(Backwards):
    def scores(self, *_: object) -> list[float]:
        raise IndexUnavailable(Store.EMBEDDER, "the reranker does not answer")


def test_any_reranker_orders_permitted_units_and_nothing_else(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """It is shown the best of the permitted ones, at least as many as are to be returned, and
    returns them in its own order; when it fails, nothing is returned."""
    rng = np.random.default_rng(5)
    public = snapshot.grant(["customer"]).plain[0]
    units = [Unit(UUID(bytes=rng.bytes(16)), public, "", sentence(rng, 20)) for _ in range(60)]
    hidden = [Unit(UUID(bytes=rng.bytes(16)), -1, "", one.body) for one in units[:30]]
    query = units[0].body

    async def run() -> None:
        async with world(database, sidecar, snapshot, HashingEmbedder(24)) as company:
            company.record.put([*units, *hidden])
            await company.settle()
            plain = [hit.unit.id for hit in (await company.search(query, reranker=None)).hits]
            for k, shown in ((5, 7), (12, 12)):
                reranker = Backwards()
                found = await company.search(query, k=k, reranker=reranker)
                (seen,) = reranker.seen
                assert len(seen) == shown
                assert seen[: min(10, shown)] == plain[: min(10, shown)]
                assert [hit.unit.id for hit in found.hits] == seen[::-1][:k]
            with pytest.raises(IndexUnavailable, match="reranker"):
                await company.search(query, reranker=Broken())
            own: Reranker = WordPairs()
            best = await company.search(query, reranker=own)
            assert best.hits[0].unit.id == units[0].id

    asyncio.run(run())
