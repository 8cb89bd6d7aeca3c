"""Whether one process of an upstream should be asked at all: the circuit breaker.

Theory. *closed*: asked, failures in a row are counted. *open*: not asked for ``open_s``.
*half open*: one trial is on its way; its outcome closes or opens again. Only what the process
did counts (no connection, no answer in time). What it answered, or what a caller can bring
about by asking for it, does not: a caller could otherwise close an upstream to everybody.

Source: Envoy's outlier detection and Nygard's circuit breaker, of which this is the smallest
useful part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Opens after ``failures_max`` failures in a row; ``clock`` gives monotonic seconds."""

    clock: Callable[[], float]
    failures_max: int = 5
    open_s: float = 10.0
    _failures: int = field(default=0, init=False)
    _open_until: float = field(default=0.0, init=False)
    _tried: bool = field(default=False, init=False)

    @property
    def state(self) -> State:
        if self._failures < self.failures_max:
            return State.CLOSED
        if self._tried or self.clock() >= self._open_until:
            return State.HALF_OPEN
        return State.OPEN

    def admits(self) -> bool:
        """Whether one more request may be sent now."""
        if self._failures < self.failures_max:
            return True
        return not self._tried and self.clock() >= self._open_until

    def begin(self) -> None:
        """A request is sent; while half open it is the trial."""
        self._tried = self._failures >= self.failures_max

    def answered(self) -> None:
        """The process gave an answer, whatever it was."""
        self._failures, self._tried = 0, False

    def failed(self) -> None:
        """The process gave none."""
        self._failures += 1
        self._tried = False
        if self._failures >= self.failures_max:
            self._open_until = self.clock() + self.open_s

    def left(self) -> None:
        """Nobody waited for the outcome: a trial is still to be made."""
        self._tried = False
