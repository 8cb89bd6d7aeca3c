"""Fusion and triggers: pure functions, their laws."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.fallback.fusion import Fusion, min_max, reciprocal_rank
from retrieval.fallback.trigger import fallback_reason

SCORES = st.dictionaries(
    st.integers(1, 12).map(lambda number: UUID(int=number)), st.floats(-1, 50), max_size=12
)
FUSIONS = pytest.mark.parametrize("fusion", [min_max, reciprocal_rank])


@FUSIONS
@given(dense=SCORES, lexical=SCORES, weight=st.floats(0, 1))
def test_order_is_by_emitted_score_then_id(
    fusion: Fusion, dense: dict[UUID, float], lexical: dict[UUID, float], weight: float
) -> None:
    """Nothing else can steer the order: not the order of arrival, not digits that are cut."""
    ranked = fusion(dense, lexical, weight)
    assert ranked == sorted(ranked, key=lambda item: (-item[1], item[0]))
    assert {unit for unit, _ in ranked} == dense.keys() | lexical.keys()
    backwards = fusion(dict(reversed(dense.items())), dict(reversed(lexical.items())), weight)
    assert backwards == ranked


@given(dense=SCORES, lexical=SCORES, weight=st.floats(0, 1))
def test_min_max_lies_in_the_unit_interval(
    dense: dict[UUID, float], lexical: dict[UUID, float], weight: float
) -> None:
    """A score that a caller sees has a scale."""
    assert all(0 <= score <= 1 for _, score in min_max(dense, lexical, weight))


@FUSIONS
def test_equal_candidates_get_equal_scores(fusion: Fusion) -> None:
    """Exact duplicates are told apart by id only."""
    one, two, three = (UUID(int=number) for number in (3, 1, 2))
    scores = {one: 1.0, two: 1.0, three: 0.5}
    ranked = fusion(scores, scores, 0.5)
    assert [unit.int for unit, _ in ranked] == [1, 3, 2]
    assert ranked[0][1] == ranked[1][1]


def test_best_on_both_sides_is_first() -> None:
    """And gets the whole of the scale."""
    a, b, c = (UUID(int=number) for number in (1, 2, 3))
    assert min_max({a: 0.1, b: 0.9}, {b: 7.0, c: 2.0}, 0.5)[0] == (b, 1.0)


@pytest.mark.parametrize(
    ("weak", "reason"),
    [
        ([], "missing_thread"),
        ([False], None),
        ([True], "weak_thread"),
        ([True, True, True], "weak_thread"),
        ([True, False], None),
    ],
)
def test_the_vector_path_is_for_missing_and_for_weak_threads(
    weak: list[bool], reason: str | None
) -> None:
    """Mandated by seed 4.7; the third reason, and threads that are named, are the service's."""
    assert fallback_reason(weak) == reason
