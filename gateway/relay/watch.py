"""Noticing that the caller has left while it is an upstream's turn to speak.

Only ``receive`` tells, and only to somebody who waits for it. Waiting costs a task, so it
begins after ``AFTER_S`` of being under way: an upstream that answers at once pays for a timer.
While the request's body is being passed on, whoever reads it hears of the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from gateway.ingress.body import Body
from gateway.relay.upstream import CallerGone

AFTER_S: Final = 0.05
Receive = Callable[[], Awaitable[Any]]


class CallerWatch:
    """A ``with`` block that a leaving caller ends with CallerGone.

    ``body`` is the request's body when it may still be read by somebody else; the block may
    read what comes when it is None.
    """

    __slots__ = ("_body", "_gone", "_receive", "_task", "_timer", "_watching")

    def __init__(self, receive: Receive, body: Body | None = None) -> None:
        self._receive = receive
        self._body = body
        self._gone = False
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if not self._gone or self._task is None:
            return
        # Our own cancellation is taken back, also when the block ended in the same moment.
        if self._task.uncancel() == 0 and (kind is None or kind is asyncio.CancelledError):
            raise CallerGone("the caller left") from None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(AFTER_S, self._begin)

    def _begin(self) -> None:
        if self._body is not None and not self._body.ended:
            self._arm()
            return
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._task is not None:
            self._gone = True
            self._task.cancel()
