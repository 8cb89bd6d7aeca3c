"""How a connection ends whose caller is still sending.

Closing with unread bytes in the socket makes the kernel reset the connection, and the answer that
stands in the caller's socket is lost with it. So the answer ends our half, what still comes is
read and dropped for ``LINGER_S``, and then the connection is closed.

Source: RFC 9112 section 9.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LINGER_S: Final = 2.0


class Ending:
    """What a request's cycle has for a transport: the connection's own, but for ``close``."""

    __slots__ = ("close", "is_closing", "write", "writelines")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.writelines = transport.writelines
        self.is_closing = transport.is_closing
        self.close = close
