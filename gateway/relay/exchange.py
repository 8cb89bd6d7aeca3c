"""One answer on its way: what a connection puts in and the relay takes out."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from gateway.relay.reading import Reading
from gateway.relay.upstream import UpstreamError

HIGH_BYTES: Final = 256 * 1024
"""What is held of a body before its upstream must pause; a read of the loop comes on top."""


class Source(Protocol):
    """The connection that an answer comes from."""

    def expect(self, wait_s: float, what: str) -> None:
        """Fail unless something comes within ``wait_s``."""

    def relax(self) -> None:
        """Nobody waits any more."""

    def resume_reading(self) -> None: ...

    def abort(self) -> None: ...


class Exchange:
    """One response: its status, its headers, and its body in pieces, once."""

    __slots__ = (
        "_head",
        "_held_bytes",
        "_idle_s",
        "_loop",
        "_pieces",
        "_source",
        "_waiter",
        "done",
        "error",
        "headers",
        "reading",
        "status",
        "told",
    )

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop, idle_s: float) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.done = False
        self.error: UpstreamError | None = None
        self.reading: Reading | None = None
        self.told: Callable[[], None] | None = None
        """Called when something came or it failed, by whoever waits without a task."""
        self._head: asyncio.Future[Exchange] | None = None
        self._source = source
        self._loop = loop
        self._idle_s = idle_s
        self._pieces: collections.deque[bytes] = collections.deque()
        self._held_bytes = 0
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self.error is not None:
                raise self.error
            if self.done:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            self._source.expect(self._idle_s, "silence inside a body")
            try:
                await self._waiter
            finally:
                self._waiter = None
                if not self.done:  # its connection may be another's by now
                    self._source.relax()
        piece = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        self._source.resume_reading()
        return piece

    async def aclose(self) -> None:
        if not self.done:
            self._source.abort()

    def head(self) -> asyncio.Future[Exchange]:
        """Done when the header block is complete; fails with what ended it before."""
        if self._head is None:
            self._head = self._loop.create_future()
            if self.error is not None and not self.status:
                self._head.set_exception(self.error)
            elif self.status:
                self._head.set_result(self)
        return self._head

    def opened(self, status: int) -> None:
        """The header block is complete."""
        self.status = status
        if self._head is not None and not self._head.done():
            self._head.set_result(self)

    @property
    def held_bytes(self) -> int:
        """How much of the body is here and was not taken."""
        return self._held_bytes

    def taken(self) -> bytes:
        """All pieces of a body that is whole, for whoever waits without a task."""
        pieces = self._pieces
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held_bytes = 0
        return whole

    def put(self, piece: bytes) -> bool:
        """Take a piece of body; True when the upstream must pause."""
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        self._wake()
        return self._held_bytes > HIGH_BYTES

    def read(self, reading: Reading, body: bytes) -> None:
        """The answer is here, whole, with a head that was read before."""
        self.reading, self.headers, self.done = reading, reading.headers, True
        self._pieces.append(body)
        self._held_bytes = len(body)
        self.opened(reading.status)

    def end(self) -> None:
        """The whole body has been put in."""
        self.done = True
        self._wake()

    def fail(self, error: UpstreamError) -> None:
        """The body ends before its end. Pieces that came before are still given."""
        if not self.done and self.error is None:
            self.error = error
            if self._head is not None and not self._head.done():
                self._head.set_exception(error)
                self._head.exception()  # read: the waiter may have left
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
