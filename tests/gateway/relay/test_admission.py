"""Limits of a route: how much, how often, how many at once.

Provenance: issue 4 part 3; attack log row D6 (a body above its limit is refused in the middle).
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Refusal
from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import needs

needs("pyrate_limiter")

from gateway.relay.admission import (  # noqa: E402 - after the look for what it needs
    Admission,
    Allowance,
    LocalRates,
    Per,
    RouteLimits,
)


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def admission(limits: RouteLimits, clock: Clock | None = None) -> Admission:
    return Admission({"r": limits}, rates=LocalRates(clock=clock or Clock()))


async def refused(gate: Admission, caller: str = "a", size: int | None = None) -> Refusal | None:
    """The refusal that meets one request, which leaves at once."""
    try:
        (await gate.enter("r", caller, declared_bytes=size)).leave()
    except Refusal as refusal:
        return refusal
    return None


def codes(*refusals: Refusal | None) -> list[str]:
    return [str(one.code) if one is not None else "" for one in refusals]


def test_burst_then_the_steady_rate_and_the_wait_is_told() -> None:
    """Three at once, then one every two seconds; Retry-After is when the next one is free."""
    clock = Clock()
    gate = admission(RouteLimits(allowance=Allowance(count=30, period_s=60, burst=3)), clock)

    async def scenario() -> None:
        found = [await refused(gate) for _ in range(4)]
        assert codes(*found) == ["", "", "", "rate_limited"]
        assert found[3] is not None
        assert found[3].headers == ((b"retry-after", b"2"),)
        clock.now += 2
        assert codes(await refused(gate), await refused(gate)) == ["", "rate_limited"]

    run(scenario())


def test_callers_have_allowances_of_their_own_and_a_route_has_one() -> None:
    """One caller's flood costs another nothing, unless the route says otherwise."""
    per = {
        who: admission(RouteLimits(allowance=Allowance(count=1, period_s=60, burst=1, per=who)))
        for who in Per
    }

    async def scenario(gate: Admission) -> list[str]:
        return codes(await refused(gate, "a"), await refused(gate, "a"), await refused(gate, "b"))

    assert run(scenario(per[Per.CALLER])) == ["", "rate_limited", ""]
    assert run(scenario(per[Per.ROUTE])) == ["", "rate_limited", "rate_limited"]


@given(gaps=st.lists(st.floats(0, 5), max_size=80), count=st.integers(1, 20))
def test_no_timing_of_requests_gets_more_than_rate_and_burst(gaps: list[float], count: int) -> None:
    """GCRA's law: in any time t at most burst + t * rate pass."""
    clock = Clock()
    allowance = Allowance(count=count, period_s=10, burst=4)
    rates = LocalRates(clock=clock)

    async def scenario() -> None:
        passed, began = 0, clock.now
        for gap in gaps:
            clock.now += gap
            passed += await rates.take("r", "a", allowance) == 0
            assert passed <= 4 + (clock.now - began) * count / 10 + 1e-6

    run(scenario())


def test_forgotten_callers_are_those_not_heard_for_longest() -> None:
    """Memory is bounded by callers, not by requests."""
    rates = LocalRates(clock=Clock(), callers_max=2)
    allowance = Allowance(count=1, period_s=60, burst=1)

    async def scenario() -> list[bool]:
        return [await rates.take("r", who, allowance) > 0 for who in "abaca" + "b"]

    assert run(scenario()) == [False, False, True, False, True, False]


def test_route_that_is_full_refuses_until_somebody_leaves() -> None:
    """Concurrency is counted from entering to leaving; leaving twice frees one place."""
    gate = admission(RouteLimits(at_once=2))

    async def scenario() -> None:
        first = await gate.enter("r", "a", declared_bytes=None)
        await gate.enter("r", "b", declared_bytes=None)
        assert codes(await refused(gate)) == ["overloaded"]
        first.leave()
        first.leave()
        with await gate.enter("r", "c", declared_bytes=None):
            assert codes(await refused(gate)) == ["overloaded"]
        assert codes(await refused(gate)) == [""]

    run(scenario())


def test_request_that_is_refused_for_its_rate_takes_no_place() -> None:
    """Otherwise a flood would fill the route."""
    gate = admission(RouteLimits(at_once=1, allowance=Allowance(count=1, period_s=60, burst=1)))

    async def scenario() -> list[str]:
        found = [await refused(gate, who) for who in ("a", "a", "b")]
        return codes(*found)

    assert run(scenario()) == ["", "rate_limited", ""]


def test_declared_size_above_the_limit_is_refused_before_a_byte() -> None:
    """No upstream is asked for what it may not have."""
    gate = admission(RouteLimits(body_bytes=10))

    async def scenario() -> list[str]:
        return codes(*[await refused(gate, size=size) for size in (None, 0, 10, 11)])

    assert run(scenario()) == ["", "", "", "body_too_large"]


def test_route_without_limits_is_not_limited() -> None:
    """No entry, no bound, no cost."""
    gate = Admission({})

    async def scenario() -> list[str]:
        return codes(*[await refused(gate, size=10**12) for _ in range(100)])

    assert run(scenario()) == [""] * 100
