"""Noticing that the caller has left, or reads no more, while it is an upstream's turn to speak.

Only ``receive`` tells that a caller left, and only to somebody who waits for it. Waiting costs
a task, so it begins after ``AFTER_S`` of being under way, twice that at most: requests that are
younger share one timer, and an upstream that answers at once pays for none. While the request's
body is being passed on, whoever reads it hears of the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from gateway.ingress.body import Body
from gateway.relay.upstream import CallerGone

AFTER_S: Final = 0.05
WRITE_STALL_S: Final = 30.0
"""How long a caller may take no byte of an answer."""
_LOOK_S: Final = 1.0
Receive = Callable[[], Awaitable[Any]]


class CallerStalled(CallerGone):
    """The caller is there and takes nothing: its connection must be reset."""


class CallerWatch:
    """A ``with`` block that a caller ends with CallerGone when it leaves, with CallerStalled
    when it takes nothing.

    ``body`` is the request's body when it may still be read by somebody else; the block may
    read what comes when it is None. ``writing`` is the number of the piece that is being sent,
    0 between them.
    """

    __slots__ = (
        "_body",
        "_end",
        "_loop",
        "_receive",
        "_since",
        "_task",
        "_timer",
        "_watching",
        "_written",
        "_young",
        "writing",
    )

    def __init__(self, receive: Receive, body: Body | None = None) -> None:
        self.writing = 0
        self._written = 0
        self._receive = receive
        self._body = body
        self._end: CallerGone | None = None
        self._since = 0.0
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None
        self._young = young_of(self._loop)

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._young.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        else:
            self._young.drop(self)
        if self._watching is not None:
            self._watching.cancel()
        if self._end is None or self._task is None:
            return
        # Our own cancellation is taken back, also when the block ended in the same moment.
        if self._task.uncancel() == 0 and (kind is None or kind is asyncio.CancelledError):
            raise self._end from None

    def look(self) -> None:
        """What the timer does: begin to listen when nobody else does, and mind a long write."""
        listens = self._watching is not None
        if not listens and (self._body is None or self._body.ended):
            self._watching = self._loop.create_task(self._watch())
            listens = True
        if self.writing != self._written:
            self._written, self._since = self.writing, self._loop.time()
        elif self.writing and self._loop.time() - self._since >= WRITE_STALL_S:
            self._finish(CallerStalled("the caller does not read"))
            return
        self._timer = self._loop.call_later(_LOOK_S if listens else AFTER_S, self.look)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._finish(CallerGone("the caller left"))

    def _finish(self, end: CallerGone) -> None:
        if self._task is not None and self._end is None:
            self._end = end
            self._task.cancel()


class Young(Protocol):
    """Something under way that is looked at when it has been so for a while."""

    def look(self) -> None: ...


class _Young:
    """Those of one loop that nothing was done about yet, the older half and the newer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._newer: set[Young] = set()
        self._older: set[Young] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watch: Young) -> None:
        self._newer.add(watch)
        if self._timer is None:
            self._timer = self.loop.call_later(AFTER_S, self._look)

    def drop(self, watch: Young) -> None:
        self._newer.discard(watch)
        self._older.discard(watch)

    def _look(self) -> None:
        due, self._older, self._newer = self._older, self._newer, set()
        self._timer = self.loop.call_later(AFTER_S, self._look) if self._older else None
        for watch in due:
            watch.look()


_latest: _Young | None = None


def young_of(loop: asyncio.AbstractEventLoop) -> _Young:
    """Where to put what is to be looked at after ``AFTER_S``, twice that at most."""
    global _latest  # a process has one loop; tests have several
    found = _latest
    if found is None or found.loop is not loop:
        found = _latest = _Young(loop)
    return found
