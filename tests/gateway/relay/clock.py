"""An event loop whose time moves only when nothing else can happen.

Real sockets, virtual seconds: while bytes are on their way nothing expires; when every socket
is silent the clock jumps to the next timer. So a test of a time of an hour takes no time, and
a busy machine changes no outcome.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SILENCE_S = 0.02
"""Real time without a byte after which nothing is under way on the loopback any more."""


class _Patient(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        ready = super().select(None if timeout is None else SILENCE_S)
        if not ready and timeout is not None:
            self.ahead_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._patient = _Patient()
        super().__init__(self._patient)

    def time(self) -> float:
        return super().time() + self._patient.ahead_s


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """The result of a scenario on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)
