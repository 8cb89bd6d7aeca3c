"""Where a search ends, without an engine: what it proposed, and whether that is all."""

from __future__ import annotations

from uuid import UUID

import pytest

from retrieval.errors import IndexUnavailable
from retrieval.stores.cut import FETCH_MAX, closed, first_fetch, next_fetch
from retrieval.stores.points import Candidate

NOBODY: frozenset[UUID] = frozenset()


def proposed(*scores: float) -> list[Candidate]:
    return [Candidate(UUID(int=number), score) for number, score in enumerate(scores, 1)]


def test_a_cut_is_closed_by_a_lower_score_behind_it_and_keeps_its_ties() -> None:
    offered = proposed(0.5, 0.9, 0.700001, 0.7, 0.8)  # in no order, and the rounding of an engine
    found = closed(offered, 3, len(offered), NOBODY)
    assert found is not None
    assert [one.score for one in found] == [0.9, 0.8, 0.700001, 0.7]


def test_a_tie_up_to_the_end_is_no_cut_as_long_as_there_may_be_more() -> None:
    offered = proposed(0.9, 0.7, 0.7)
    assert closed(offered, 2, fetched=3, excluded=NOBODY) is None
    assert closed(offered, 2, fetched=4, excluded=NOBODY) == offered  # there are no more


def test_fewer_than_the_limit_are_enough_only_when_there_are_no_more() -> None:
    offered = proposed(0.9, 0.8)
    assert closed(offered, 3, fetched=3, excluded=NOBODY) == offered
    assert closed(offered, 3, fetched=2, excluded=NOBODY) is None


def test_what_is_excluded_fills_no_place_before_the_cut() -> None:
    offered = proposed(0.9, 0.8, 0.7, 0.6)
    without = closed(offered, 2, 4, frozenset({offered[0].unit_id}))
    assert without == offered[1:3]
    assert first_fetch(2, frozenset({offered[0].unit_id})) == first_fetch(2, NOBODY) + 1


def test_more_ties_than_may_be_fetched_are_an_error_and_not_a_choice() -> None:
    fetched = first_fetch(5, NOBODY)
    while fetched < FETCH_MAX:
        assert closed(proposed(*[0.5] * fetched), 5, fetched, NOBODY) is None
        fetched = next_fetch(fetched)
    assert fetched == FETCH_MAX
    with pytest.raises(IndexUnavailable, match="tie at the cut of 5"):
        closed(proposed(*[0.5] * fetched), 5, fetched, NOBODY)
