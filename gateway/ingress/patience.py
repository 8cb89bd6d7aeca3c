"""How long a connection may keep the gateway waiting: for the end of a header block, from the
connect or from its first byte on, and for the next request after an answer beside the application
(uvicorn minds that after its own).

One timer per connection, which is set anew only when it rings: a request pays for none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.ingress.limits import Limits

NEVER: Final = float("inf")


class Patience:
    """The one timer of a connection."""

    __slots__ = (
        "_idle",
        "_idle_s",
        "_late",
        "_limits",
        "_loop",
        "_resting",
        "_rings_at",
        "_timer",
        "due",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        *,
        idle_s: float,
        late: Callable[[], None],
        idle: Callable[[], None],
    ) -> None:
        """``late`` is called when a header block takes too long, by the limit that holds when it
        begins; ``idle`` when no request came for ``idle_s``."""
        self._limits, self._idle_s = limits, idle_s
        self.due = NEVER
        """When it is over, by the loop's clock; NEVER while nothing is waited for."""
        self._rings_at = NEVER
        self._resting = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = loop
        self._late, self._idle = late, idle

    def begin(self) -> None:
        """Bytes of a header block came; of one that is under way its time runs on."""
        if self.due == NEVER or self._resting:
            self._resting = False
            self._ring_at(self._loop.time() + self._limits.header_s)

    def rest(self) -> None:
        """Wait for the next request, as long as a kept connection may."""
        self._resting = True
        self._ring_at(self._loop.time() + self._idle_s)

    def stop(self) -> None:
        """What was waited for is here."""
        self.due = NEVER

    def end(self) -> None:
        """Stop, and let go of the timer, too: it would keep the connection in memory."""
        self.due = NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring_at(self, due: float) -> None:
        self.due = due
        if self._timer is not None and self._rings_at > due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._rings_at = due
            self._timer = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self.due == NEVER:
            return
        if self._loop.time() < self.due:
            self._ring_at(self.due)
            return
        self.due = NEVER
        if self._resting:
            self._idle()
        else:
            self._late()
