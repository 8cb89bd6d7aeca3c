"""Measures are those of the literature, intervals repeatable, losses told from chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.evaluate.measures import MEASURES, complete, first, interval, lost, ndcg, recall

NAMES = [f"d{n}" for n in range(30)]
RANKED = st.permutations(NAMES).flatmap(
    lambda order: st.integers(0, 30).map(lambda size: order[:size])
)
RELEVANT = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3), min_size=1, max_size=12)


def test_ndcg_of_a_known_ranking() -> None:
    """By hand: gains 3 at rank 1 and 1 at rank 3, best possible 3, 2, 1."""
    found = ndcg(["a", "x", "c"], {"a": 3, "b": 2, "c": 1})
    best = 3 + 2 / math.log2(3) + 1 / math.log2(4)
    assert found == pytest.approx((3 + 1 / math.log2(4)) / best)


def test_what_stands_beyond_the_tenth_counts_for_nothing() -> None:
    ranked = [*NAMES[:10], "answer"]
    assert [m(ranked, {"answer": 1}) for m in MEASURES.values()] == [0, 0, 0, 0]
    assert [m(["answer", *ranked], {"answer": 1}) for m in MEASURES.values()] == [1, 1, 1, 1]


@given(RANKED, RELEVANT)
def test_every_measure_lies_between_nothing_and_perfect(
    ranked: list[str], relevant: dict[str, int]
) -> None:
    """And the best order is worth 1, or as much as fits into ten."""
    for measure in MEASURES.values():
        assert 0 <= measure(ranked, relevant) <= 1
    best = sorted(relevant, key=lambda one: -relevant[one])
    assert ndcg(best, relevant) == pytest.approx(1)
    assert first(best, relevant) == 1
    assert recall(best, relevant) == min(10, len(relevant)) / len(relevant)
    assert complete(best, relevant) == (len(relevant) <= 10)


@given(RANKED, RELEVANT)
def test_moving_an_answer_up_never_costs(ranked: list[str], relevant: dict[str, int]) -> None:
    """The first answer that stands below something else, one place up."""
    place = next((n for n, one in enumerate(ranked) if n and one in relevant), None)
    if place is None or ranked[place - 1] in relevant:
        return
    better = list(ranked)
    better[place - 1 : place + 1] = [ranked[place], ranked[place - 1]]
    assert all(m(better, relevant) >= m(ranked, relevant) for m in MEASURES.values())


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_the_mean_lies_in_its_interval_and_a_second_look_says_the_same(values: list[float]) -> None:
    found = interval(values)
    assert found.low - 1e-9 <= found.mean <= found.high + 1e-9
    assert interval(values) == found


def test_intervals_hold_what_they_say() -> None:
    """Of 200 samples of a known mean, about 95 % of the intervals cover it."""
    rng = np.random.default_rng(3)
    covered = sum(
        found.low <= 0.7 <= found.high
        for found in (interval(list(map(float, rng.random(80) < 0.7))) for _ in range(200))
    )
    assert covered >= 180


def test_a_small_loss_on_every_question_is_significant_and_noise_is_not() -> None:
    """Question by question: the spread between questions hides neither."""
    rng = np.random.default_rng(4)
    before = list(rng.random(200))
    worse = [value - 0.01 for value in before]
    noise = [value + change for value, change in zip(before, rng.normal(0, 0.05, 200), strict=True)]
    assert lost(worse, before).high < 0
    assert lost(noise, before).high > 0
