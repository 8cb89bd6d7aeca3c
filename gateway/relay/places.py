"""So many at once, and the others in the order in which they came.

`asyncio.Semaphore` cannot be taken without a coroutine, which whoever lends a connection between
two reads of the loop does not have.
"""

from __future__ import annotations

import asyncio
import collections


class Places:
    """``count`` places. To be used on one loop."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    def take(self) -> bool:
        """Take a place that is free and that nobody waits for; whether there was one."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Take a place as soon as it is one's turn."""
        if self.take():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()  # it was ours in the moment in which we left
            raise

    def give(self) -> None:
        """Give a place back: to whoever waits longest, if anybody does."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
