"""How a connection ends whose caller is still sending, or does not read.

Closing with unread bytes in the socket makes the kernel reset the connection, and the answer that
stands in the caller's socket is lost with it. So the answer ends our half, what still comes is
read and dropped for ``LINGER_S``, and then the connection is closed.

Nor may a caller hold a closed connection by not reading: it ends when its last bytes are taken, or
when none was for ``STALL_S``.

Source: RFC 9112 section 9.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LINGER_S: Final = 2.0
STALL_S: Final = 30.0
"""How long a closed connection may take none of its last bytes."""


class Ending:
    """What a request's cycle has for a transport: the connection's own, but for ``close``."""

    __slots__ = ("close", "is_closing", "write", "writelines")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.writelines = transport.writelines
        self.is_closing = transport.is_closing
        self.close = close


class Parting:
    """The end of one connection: its timers, which nobody has before it begins."""

    __slots__ = ("_lingers", "_loop", "_stall", "_transport", "_unsent")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop, self._transport = loop, transport
        self._lingers: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent = 0

    def linger(self) -> None:
        """End our half, and close when the caller had its time."""
        if self._lingers is not None:
            self._lingers.cancel()
        self._transport.write_eof()
        self._lingers = self._loop.call_later(LINGER_S, self.close)

    def close(self) -> None:
        self._transport.close()
        self.mind()

    def mind(self) -> None:
        """Watch a connection that is closed: its last bytes may have no reader."""
        if self._stall is None:
            self._unsent = self._transport.get_write_buffer_size()
            self._stall = self._loop.call_later(STALL_S, self._stalled)

    def over(self) -> None:
        """The connection is lost."""
        for timer in (self._lingers, self._stall):
            if timer is not None:
                timer.cancel()

    def _stalled(self) -> None:
        self._stall = None
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self.mind()
        else:
            self._transport.abort()
