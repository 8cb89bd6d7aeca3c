"""Where the time of one request went, for the span that the gateway writes.

Names are a closed set and values are durations: nothing about what was found or hidden. The
gateway strips them before a caller sees the answer.

This module knows no tracer: the trace is the gateway's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from retrieval.contract import Phase


class Timings:
    """Milliseconds per phase of one request; a phase that runs twice is added up."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent: dict[Phase, float] = {}

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Times its body, also when that raises."""
        start = perf_counter()
        try:
            yield
        finally:
            self._spent[phase] = self._spent.get(phase, 0.0) + (perf_counter() - start) * 1e3

    def wire(self) -> tuple[tuple[Phase, float], ...]:
        """``(phase, milliseconds)`` in the order of ``Phase``."""
        return tuple((p, round(self._spent[p], 3)) for p in Phase if p in self._spent)
