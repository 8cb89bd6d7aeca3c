"""One HTTP/1.1 client connection: parsing, back-pressure and when it must not be reused.

Laws
    * Every byte belongs to the exchange under way. A byte before a request or after the end
      of a response makes the connection dirty, and a dirty connection is cut.
    * A body that ends early is an error, never an end.
    * A slow reader pauses the upstream; nothing is buffered beyond ``HIGH_BYTES``.
    * One timer per connection, set anew only when it rings: a request pays for no timer.

Source: attack log rows S15, S17; libraries Part B section 9 (checklist of an own pool).
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Any, Final, cast

import httptools

from gateway.relay.exchange import Exchange
from gateway.relay.framing import framing_of
from gateway.relay.reading import Readings, name_of
from gateway.relay.upstream import (
    UpstreamError,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamTimes,
    UpstreamUnavailable,
)

HEADER_BYTES: Final = 64 * 1024
HEADER_COUNT: Final = 200
INTERIM_MAX: Final = 8
_NEVER: Final = float("inf")


class Connection(asyncio.Protocol):
    """A connection that serves one exchange at a time; the pool owns it between them."""

    def __init__(
        self,
        *,
        times: UpstreamTimes,
        readings: Readings | None = None,
        on_free: Callable[[Connection], None],
        on_gone: Callable[[Connection], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.times = times
        self.closed = False
        self.heard = False
        self.idle_since = 0.0
        self._readings = readings
        self._unread = b""
        self._on_free = on_free
        self._on_gone = on_gone
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._poll: select.poll | None = None
        self._exchange: Exchange | None = None
        self._writable: asyncio.Future[None] | None = None
        self._method = ""
        self._until_eof = self._interim = self._complete = self._reading_head = False
        self._keep = self._paused = self._sending = self._body_seen = False
        self._interims = self._silent_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = self._due = self._ends = _NEVER
        self._what = ""

    # --- for the pool -----------------------------------------------------------------------

    def begin(self, method: str) -> Exchange:
        """Be ready for one response, which is empty until its header block is complete."""
        self.heard = self._complete = self._keep = self._until_eof = self._interim = False
        self._reading_head = self._sending = True
        self._interims = self._silent_bytes = 0
        self._method = method
        self._parser = None
        self._unread = b""
        exchange = self._exchange = Exchange(self, self.loop, self.times.idle_s)
        self._ends = self.loop.time() + self.times.total_s
        return exchange

    def ask(self, head: bytes, told: Callable[[], None]) -> Exchange:
        """Send a GET that is all of its header block, without waiting; ``told`` is called when
        something of its answer came, and when none will."""
        exchange = self.begin("GET")
        exchange.told = told
        if self._transport is not None:
            self._transport.write(head)
        self.sent()
        return exchange

    def fresh(self) -> bool:
        """Whether the connection is open and holds no unread byte. Cost: one poll(2)."""
        if self.closed or self._transport is None or self._transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            socket = self._transport.get_extra_info("socket")
            self._poll.register(socket.fileno(), select.POLLIN)
        return not self._poll.poll(0)

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

    def sent(self) -> None:
        """The request is written to its end: from now on the upstream owes an answer."""
        self._sending = False
        if self._complete:
            self._release()
        elif self._reading_head:
            self.expect(self.times.first_byte_s, "no answer in time")

    def abort(self) -> None:
        self.fail(UpstreamInvalid("connection cut"))

    def abandon(self, exchange: Exchange) -> None:
        """Cut this exchange, unless it ended: then the connection may be another's."""
        if self._exchange is exchange:
            self.abort()

    def fail(self, error: UpstreamError) -> None:
        """End the exchange with an error and cut the connection."""
        exchange = self._exchange
        if exchange is not None:
            exchange.fail(error)
        self._cut()
        if exchange is not None and exchange.told is not None:
            exchange.told()

    # --- for the exchange -------------------------------------------------------------------

    def resume_reading(self) -> None:
        if self._paused and self._transport is not None and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    def expect(self, wait_s: float, what: str) -> None:
        self._due, self._what = self.loop.time() + wait_s, what
        self._watch()

    def relax(self) -> None:
        self._due = _NEVER

    # --- time -------------------------------------------------------------------------------

    def _watch(self) -> None:
        next_at = min(self._due, self._ends)
        if next_at < self._rings_at and not self.closed:
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at = next_at
            self._timer = self.loop.call_at(next_at, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, _NEVER
        if self._exchange is None:
            return
        now = self.loop.time()
        if now >= self._due:
            self.fail(UpstreamTimeout(self._what))
        elif now >= self._ends:
            self.fail(UpstreamTimeout("the exchange took too long"))
        else:
            self._watch()

    # --- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's: cast, never isinstance
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        ended = self._exchange if self._until_eof and exc is None else None
        if ended is not None:
            ended.end()
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
        if ended is not None and ended.told is not None:
            ended.told()

    def pause_writing(self) -> None:
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or self._complete:
            self._cut()  # bytes that nobody asked for
            return
        if self._parser is None:
            if exchange.told is not None and self._read_before(exchange, data):
                return
            self._parser = httptools.HttpResponseParser(self)
        self.heard, self._body_seen = True, False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail(UpstreamInvalid("the upstream switched protocols unasked"))
            return
        except httptools.HttpParserError as error:
            if self._complete:
                self._cut()  # the response is whole; what follows it is not ours
                if exchange.told is not None:
                    exchange.told()
                return
            ours = error.__context__  # what one of our callbacks raised
            unread = UpstreamInvalid("the answer cannot be parsed")
            self.fail(ours if isinstance(ours, UpstreamInvalid) else unread)
            return
        if self._complete:
            if self._unread:
                self._learn(exchange)
            self._release()
        elif not self._body_seen:
            # the parser holds an unfinished line: of a header, a chunk's extension, a trailer
            self._silent_bytes += len(data)
            if self._silent_bytes > HEADER_BYTES:
                self.fail(UpstreamInvalid("a header block without end"))
                return
        if exchange.told is not None and exchange.status:
            exchange.told()

    def _read_before(self, exchange: Exchange, data: bytes) -> bool:
        """Whether this is a whole answer whose head was read before: then it is one again."""
        at = data.find(b"\r\n\r\n") + 4
        if at < 4 or self._readings is None:
            return False
        name = name_of(data[:at])
        reading = self._readings.get(name)
        if reading is None:
            self._unread = name
            return False
        if reading.body_bytes != len(data) - at:
            return False
        self.heard = self._keep = self._complete = True
        self._due = _NEVER
        exchange.read(reading, data[at:])
        self._release()
        if exchange.told is not None:
            exchange.told()
        return True

    def _learn(self, exchange: Exchange) -> None:
        """Remember the head that was just read, if the same bytes will end the same way."""
        if self._keep and not self._interims and exchange.held_bytes and self._readings is not None:
            for name, value in exchange.headers:
                if name == b"content-length" and int(value) == exchange.held_bytes:
                    self._readings.learn(
                        self._unread, exchange.status, exchange.headers, exchange.held_bytes
                    )

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
        if exchange is None:
            raise UpstreamInvalid("an answer without a question")
        status = self._parser.get_status_code()
        if status < 200:
            self._interims += 1
            if status < 100 or status == 101 or self._interims > INTERIM_MAX:
                raise UpstreamInvalid("an interim answer that was not asked for")
            exchange.headers.clear()
            self._interim = True
            return
        framing = framing_of(
            exchange.headers,
            status=status,
            method=self._method,
            version=self._parser.get_http_version(),
        )
        self._reading_head = False
        self._silent_bytes = 0
        self.relax()
        self._watch()
        self._until_eof = framing.until_eof
        self._keep = (
            self._parser.should_keep_alive() and not framing.until_eof and not framing.doubtful
        )
        if self._method == "HEAD":
            self._finish()  # the parser would wait for the body that the length names
        exchange.opened(status)

    def on_body(self, body: bytes) -> None:
        if self._complete or self._exchange is None:
            raise UpstreamInvalid("a body where none may be")
        self._body_seen, self._silent_bytes = True, 0
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
        self.relax()
        if self._exchange is not None:
            self._exchange.end()

    def _release(self) -> None:
        """Give the connection back, once the answer is whole and the question was sent whole.

        A question that is still being sent when its answer is whole keeps the connection from
        everybody: the pool stops sending and cuts it.
        """
        self.resume_reading()
        if self._sending and self._keep:
            return
        self._exchange = None
        if self._keep and not self.closed:
            self.idle_since = self.loop.time()
            self._on_free(self)
        else:
            self._cut()

    def _cut(self) -> None:
        if not self.closed:
            self.closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._transport is not None:
                self._transport.abort()
            self._on_gone(self)
