"""The circuit breaker as a table of states: what opens it, what closes it, whom it lets through.

Provenance: issue 4 (circuit breaker per target); chosen by us: only silence counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.relay.breaker import Breaker, State


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock=clock, failures_max=3, open_s=10)
    for _ in range(3):
        breaker.begin()
        breaker.failed()
    return breaker


def test_it_opens_after_failures_in_a_row_and_admits_nobody() -> None:
    """An answer in between begins the count anew."""
    clock = Clock()
    breaker = Breaker(clock=clock, failures_max=3, open_s=10)
    for outcome in (breaker.failed, breaker.failed, breaker.answered, breaker.failed):
        breaker.begin()
        outcome()
    assert breaker.state is State.CLOSED
    breaker.failed()
    assert breaker.admits()
    breaker.failed()
    assert (breaker.state, breaker.admits()) == (State.OPEN, False)


def test_one_trial_after_its_time_and_its_outcome_decides() -> None:
    """Half open admits one; the others wait for what becomes of it."""
    clock = Clock()
    breaker = opened(clock)
    clock.now += 10
    assert breaker.admits()
    breaker.begin()
    assert (breaker.state, breaker.admits()) == (State.HALF_OPEN, False)
    breaker.failed()
    assert breaker.state is State.OPEN
    clock.now += 10
    breaker.begin()
    breaker.answered()
    assert (breaker.state, breaker.admits()) == (State.CLOSED, True)


def test_trial_that_nobody_waited_for_is_made_again() -> None:
    """A caller that leaves says nothing about the upstream, and does not keep it closed."""
    clock = Clock()
    breaker = opened(clock)
    clock.now += 10
    breaker.begin()
    breaker.left()
    assert breaker.admits()


@given(st.lists(st.sampled_from(["answered", "failed", "left", "wait"]), max_size=60))
def test_it_is_never_shut_for_good(steps: list[str]) -> None:
    """Whatever happened: after its time somebody is admitted, and an answer closes it."""
    clock = Clock()
    breaker = Breaker(clock=clock, failures_max=3, open_s=10)
    for step in steps:
        if step == "wait":
            clock.now += 4
        elif breaker.admits():
            breaker.begin()
            getattr(breaker, step)()
    clock.now += 10
    assert breaker.admits()
    breaker.begin()
    breaker.answered()
    assert breaker.state is State.CLOSED
