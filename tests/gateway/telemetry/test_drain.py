"""The queue behind every line of telemetry: bounded, never waited for, honest about losses."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.drain import Drain


class Writer:
    """Keeps what it is given, once it is let; loses batches while it is broken."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.batches: list[int] = []
        self.entered, self.released = threading.Event(), threading.Event()
        self.broken: type[Exception] | None = None
        self.released.set()

    def write(self, batch: list[int]) -> int:
        self.entered.set()
        self.released.wait()
        if self.broken is not None:
            raise self.broken("text that must not be logged")
        self.items += batch
        self.batches.append(len(batch))
        return 0


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 10))
def test_a_stuck_writer_takes_as_much_as_fits_and_what_is_weighty_fits_longer(
    weights: list[bool], items_max: int
) -> None:
    writer = Writer()
    writer.released.clear()
    drain = Drain(writer.write, name="test", items_max=items_max)
    assert drain.put(-1)
    assert writer.entered.wait(5)
    queued, taken = 0, [-1]
    for number, weighty in enumerate(weights):
        fits = queued < items_max * (2 if weighty else 1)
        assert drain.put(number, weighty=weighty) == fits
        if fits:
            queued += 1
            taken.append(number)
    assert drain.overflowed == len(weights) + 1 - len(taken)
    writer.released.set()
    assert drain.flush(timeout_s=20)
    assert writer.items == taken
    assert max(writer.batches) <= 128
    drain.close(timeout_s=5)


def test_a_writer_that_fails_is_counted_and_asked_again() -> None:
    """A full disk today, room tomorrow: the thread lives on, and no text of the error is told."""
    writer = Writer()
    writer.broken = ZeroDivisionError
    drain = Drain(writer.write, name="test", items_max=10)
    drain.put(1)
    assert drain.flush(timeout_s=20)
    writer.broken = None
    drain.put(2)
    drain.close(timeout_s=20)
    assert (drain.failed, writer.items) == (1, [2])


def test_closing_writes_what_is_queued_and_does_not_wait_for_a_stuck_writer() -> None:
    writer = Writer()
    drain = Drain(writer.write, name="test", items_max=10, linger_s=3600)
    for number in range(5):
        drain.put(number)
    drain.close(timeout_s=20)  # the linger does not hold it up
    assert writer.items == [0, 1, 2, 3, 4]
    stuck = Writer()
    stuck.released.clear()
    drain = Drain(stuck.write, name="test", items_max=10)
    drain.put(1)
    assert stuck.entered.wait(5)
    drain.close(timeout_s=0.01)
    assert not drain.flush(timeout_s=0.01)
    stuck.released.set()
