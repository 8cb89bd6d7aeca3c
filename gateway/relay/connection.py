"""One HTTP/1.1 client connection: parsing, back-pressure and when it must not be reused.

Laws
    * Every byte belongs to the exchange under way. A byte before a request or after the end
      of a response makes the connection dirty, and a dirty connection is cut.
    * A body that ends early is an error, never an end.
    * A slow reader pauses the upstream; nothing is buffered beyond ``HIGH_BYTES``.

Source: attack log rows S15, S17; libraries Part B section 9 (checklist of an own pool).
"""

from __future__ import annotations

import asyncio
import collections
import re
import select
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, cast

import httptools

from gateway.relay.upstream import (
    UpstreamError,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamTimes,
    UpstreamUnavailable,
)

HIGH_BYTES: Final = 256 * 1024
HEADER_BYTES: Final = 64 * 1024
HEADER_COUNT: Final = 200
INTERIM_MAX: Final = 8
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_BODYLESS: Final = frozenset({204, 304})


class Exchange:
    """One response on its way: what the relay reads from."""

    __slots__ = (
        "_connection",
        "_error",
        "_held_bytes",
        "_pieces",
        "_waiter",
        "done",
        "headers",
        "status",
    )

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.done = False
        self._connection = connection
        self._pieces: collections.deque[bytes] = collections.deque()
        self._held_bytes = 0
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.done:
                raise StopAsyncIteration
            self._waiter = self._connection.loop.create_future()
            try:
                async with asyncio.timeout(self._connection.times.idle_s):
                    await self._waiter
            except TimeoutError:
                self._connection.fail(UpstreamTimeout("silence inside a body"))
            finally:
                self._waiter = None
        piece = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        self._connection.resume_reading()
        return piece

    async def aclose(self) -> None:
        if not self.done:
            self._connection.abort()

    def put(self, piece: bytes) -> bool:
        """Take a piece of body; True when the upstream must pause."""
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        self.wake()
        return self._held_bytes > HIGH_BYTES

    def fail(self, error: UpstreamError) -> None:
        if not self.done and self._error is None:
            self._error = error
            self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """A connection that serves one exchange at a time; the pool owns it between them."""

    def __init__(
        self,
        *,
        times: UpstreamTimes,
        on_free: Callable[[Connection], None],
        on_gone: Callable[[Connection], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.times = times
        self.closed = False
        self.heard = False
        self.idle_since = 0.0
        self._on_free = on_free
        self._on_gone = on_gone
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._exchange: Exchange | None = None
        self._head: asyncio.Future[Exchange] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._bodyless = self._interim = self._until_eof = False
        self._complete = self._reading_head = self._keep = self._paused = self._spent = False
        self._interims = self._header_bytes = 0

    # --- for the pool -----------------------------------------------------------------------

    def begin(self, method: str) -> asyncio.Future[Exchange]:
        """Be ready for one response; the future holds it when its header block is complete."""
        self.heard = self._complete = self._keep = self._until_eof = self._interim = False
        self._reading_head = True
        self._interims = self._header_bytes = 0
        self._bodyless = method == "HEAD"
        self._parser = httptools.HttpResponseParser(self)
        self._exchange = Exchange(self)
        self._head = self.loop.create_future()
        return self._head

    def fresh(self) -> bool:
        """Whether an idle connection is open and holds no unread byte. Cost: one poll(2)."""
        if self.closed or self._transport is None or self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    async def write(self, data: bytes) -> None:
        """Send, waiting while the upstream does not read."""
        if self.closed or self._transport is None:
            raise UpstreamUnavailable("connection lost while writing")
        self._transport.write(data)
        if self._writable is not None:
            try:
                async with asyncio.timeout(self.times.write_s):
                    await asyncio.shield(self._writable)
            except TimeoutError:
                raise UpstreamTimeout("the upstream does not read") from None

    def keep_for_none(self) -> None:
        """Never reuse this connection: its request was not sent to the end."""
        self._spent = True

    def abort(self) -> None:
        self.fail(UpstreamInvalid("connection cut"))

    def fail(self, error: UpstreamError) -> None:
        """End the exchange with an error and cut the connection."""
        if self._head is not None and not self._head.done():
            self._head.set_exception(error)
            self._head.exception()  # read: the waiter may have left
        if self._exchange is not None:
            self._exchange.fail(error)
        self._cut()

    def resume_reading(self) -> None:
        if self._paused and self._transport is not None and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    # --- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's: cast, never isinstance
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.status and self._until_eof and exc is None:
            exchange.done = True
            exchange.wake()
        else:
            self.fail(
                UpstreamInvalid("the answer ended before its end")
                if self.heard
                else UpstreamUnavailable("connection lost before an answer")
            )
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(UpstreamUnavailable("connection lost while writing"))
            self._writable.exception()
        self._cut()

    def pause_writing(self) -> None:
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:
            self._cut()  # bytes that nobody asked for
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail(UpstreamInvalid("the upstream switched protocols unasked"))
            return
        except httptools.HttpParserError:
            if self._complete:
                self._cut()  # the response is whole; what follows it is not ours
            else:
                self.fail(UpstreamInvalid("the answer cannot be parsed"))
            return
        if self._reading_head:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self.fail(UpstreamInvalid("the header block is too large"))
        if self._complete:
            self._release()

    # --- httptools ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise UpstreamInvalid("bytes after the end of a response")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading_head and self._exchange is not None:
            if len(self._exchange.headers) >= HEADER_COUNT:
                raise UpstreamInvalid("too many headers")
            self._exchange.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or self._head is None:
            raise UpstreamInvalid("an answer without a question")
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._interims += 1
            if status == 101 or self._interims > INTERIM_MAX:
                raise UpstreamInvalid("an interim answer that was not asked for")
            exchange.headers.clear()
            self._interim = True
            return
        lengths = {value.strip() for name, value in exchange.headers if name == b"content-length"}
        codings = [v.strip().lower() for n, v in exchange.headers if n == b"transfer-encoding"]
        if len(lengths) > 1 or any(not _DIGITS.fullmatch(length) for length in lengths):
            raise UpstreamInvalid("more than one length")
        if codings and (codings != [b"chunked"] or lengths):
            raise UpstreamInvalid("ambiguous framing")
        self._reading_head = False
        exchange.status = status
        self._until_eof = not lengths and not codings and status not in _BODYLESS
        self._keep = bool(self._parser.should_keep_alive()) and not self._until_eof
        if self._bodyless:
            self._finish()  # HEAD: the parser would wait for the body that its length names
        if not self._head.done():
            self._head.set_result(exchange)

    def on_body(self, body: bytes) -> None:
        if self._complete or self._exchange is None:
            raise UpstreamInvalid("a body where none may be")
        if self._exchange.put(body) and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self._complete:
            self._finish()

    # --- ends -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._complete = True
        if self._exchange is not None:
            self._exchange.done = True
            self._exchange.wake()

    def _release(self) -> None:
        self._exchange = None
        self.resume_reading()
        if self._keep and not self._bodyless and not self._spent and not self.closed:
            self.idle_since = self.loop.time()
            self._on_free(self)
        else:
            self._cut()

    def _cut(self) -> None:
        if not self.closed:
            self.closed = True
            if self._transport is not None:
                self._transport.abort()
            self._on_gone(self)
