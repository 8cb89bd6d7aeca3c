"""Sampling by id and the rate by a clock: repeatable, so that replicas and reruns agree."""

from __future__ import annotations

import secrets

from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.sampling import Rate, kept

IDS = st.text(min_size=1, max_size=64)
RATIOS = st.floats(0, 1)


@given(IDS, RATIOS, RATIOS)
def test_what_is_kept_at_a_ratio_is_kept_at_every_larger_one(
    request_id: str, one: float, two: float
) -> None:
    """So a record of a small sample is in every larger sample of the same requests, too."""
    assert kept(request_id, min(one, two)) <= kept(request_id, max(one, two))
    assert kept(request_id, one) == kept(request_id, one)


@given(IDS)
def test_none_is_kept_at_zero_and_all_at_one(request_id: str) -> None:
    assert not kept(request_id, 0.0)
    assert kept(request_id, 1.0)


def test_the_share_that_is_kept_is_the_ratio() -> None:
    """20,000 random ids at 0.1: six standard deviations are 254."""
    found = sum(kept(secrets.token_hex(16), 0.1) for _ in range(20_000))
    assert abs(found - 2_000) < 255


def test_ids_that_follow_each_other_are_sampled_like_any() -> None:
    """A proxy may count its ids up: neighbours must not share a fate."""
    found = sum(kept(f"proxy-{number:08d}", 0.5) for number in range(10_000))
    assert abs(found - 5_000) < 300


@given(
    st.integers(1, 50),
    st.lists(st.integers(0, 2_000_000_000), min_size=1, max_size=200),
)
def test_no_second_has_more_than_twice_the_rate_and_no_run_more_than_it_earned(
    per_second: int, steps: list[int]
) -> None:
    """A bucket of one second's tokens: in any span of s seconds at most rate * (s + 1) pass."""
    rate, now, passed = Rate(per_second), 0, []
    for step in steps:
        now += step
        if rate.take(now):
            passed.append(now)
    for first, start in enumerate(passed):
        for last in range(first, len(passed)):
            span_s = (passed[last] - start) / 1e9
            assert last - first + 1 <= per_second * (span_s + 1) + 1e-6


@given(st.integers(1, 50), st.lists(st.integers(-(10**9), 10**9), max_size=200))
def test_a_clock_that_stands_still_or_falls_back_earns_nothing(
    per_second: int, times: list[int]
) -> None:
    rate = Rate(per_second)
    before = sum(rate.take(10**9) for _ in range(2 * per_second))
    assert before == per_second
    assert not any(rate.take(min(one, 10**9)) for one in times)


def test_a_second_without_requests_earns_one_second_and_no_more() -> None:
    rate = Rate(10)
    assert sum(rate.take(0) for _ in range(50)) == 10
    assert sum(rate.take(100_000_000) for _ in range(50)) == 1
    assert sum(rate.take(3_600 * 10**9) for _ in range(50)) == 10
