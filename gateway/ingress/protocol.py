"""uvicorn's HTTP/1.1 protocol with the checks that it leaves to others.

Laws
    * A request reaches the application only with one reading: one valid Host, an origin-form
      target, one framing, header names and counts within bounds.
    * Headers are frozen when the header block ends. Trailers never become headers.
    * Nobody holds a connection without sending: idle, half-sent and endless header blocks end
      in 408 or 431 and a closed connection.
    * Nobody holds a connection without reading: one that is closed ends when its last bytes
      are taken, or when none was for a while. One whose answer is complete before the body
      of its request is closed. A caller that still sends can read its refusal before that.
    * An answer to a bad pipelined request is never written into an answer under way.
    * Whoever sends requests ahead of their answers has a few of them parsed; the others wait as
      bytes, within bounds.

Source: attack log section 4 and rows A5, A14, A16, B2, B13, D1-D4, S1-S14.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

from gateway.errors import Code, GatewayError
from gateway.ingress.abort import ABORT, cut
from gateway.ingress.door import Door
from gateway.ingress.ending import Ending, Parting
from gateway.ingress.handshake import Handshake
from gateway.ingress.judgement import judged
from gateway.ingress.limits import Limits
from gateway.ingress.opening import OPEN, whole, write_whole
from gateway.ingress.parser import HttpToolsProtocol, RequestResponseCycle, httptools
from gateway.ingress.patience import NEVER, Patience
from gateway.ingress.provenance import new_request_id
from gateway.ingress.refusal import refusal_of
from gateway.ingress.shortcut import Lane, Way

_FEED_BYTES: Final = 4096
_AHEAD_BYTES_MAX: Final = 1024 * 1024
"""What may wait unparsed behind requests that are under way; more ends the connection."""
PIPELINED_MAX: Final = 16
"""How many requests are parsed ahead of the one under way, and those of one piece more: a read
brings ten thousand, which would take a hundred times their size and everybody's time."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol, with the checks it leaves to others.

    Set ``limits``, ``sockets`` (whether it takes WebSockets) and ``door`` (how many connections
    an address may have) through :func:`guarded`; one class per listener.
    """

    limits: Limits = Limits()
    sockets: bool = False
    door: Door = Door(limits)
    lane: Lane | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_headers = self._between = True
        self._header_bytes = self._tail_bytes = self._messages = 0
        self._body_seen = False
        self._beside: dict[str, Any] = {}
        self._way: Way | None = None
        self._verdict: Code | None = None
        self._later = b""
        self._closed = False
        self._open: list[RequestResponseCycle] = []
        self._patience = Patience(
            self.loop,
            self.limits,
            idle_s=self.timeout_keep_alive,
            late=self._late,
            idle=self.timeout_keep_alive_handler,
        )
        self._lingering = False
        self._handshake: Handshake | None = None
        self._switch_at = -1

    # --- time ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # theirs
        super().connection_made(transport)
        self._ending = Ending(transport, self._end)
        self._parting = Parting(self.loop, transport)
        if self.lane is not None:
            self._way = Way(self, self.lane)
        self._peer = self.client[0] if self.client else ""
        self._entered = self.door.enter(self._peer)
        if self._entered:
            self._patience.begin()
        else:
            self._refuse(Code.OVERLOADED)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.end()
        self._parting.over()
        self._closed = True
        if self._way is not None:
            self._way.lost()
            self._way = None
        if self._entered:
            self.door.leave(self._peer)
        # uvicorn tells only the newest request; the one under way may be an earlier one
        self.pipeline.clear()
        self._later = b""
        for cycle in self._open:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def _late(self) -> None:
        self._refuse(Code.REQUEST_TIMEOUT)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._parting.mind()

    def on_response_complete(self) -> None:
        if self._lingering:
            self.server_state.total_requests += 1
            return
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            # what is left of the body would have neither a reader nor a time
            self._linger()
        elif self.transport.is_closing():
            self._parting.mind()
        elif self.pipeline:
            self.flow.pause_reading()  # a read for each answer would pile up
        elif self._later:
            later, self._later = self._later, b""
            self.data_received(later)

    def _end(self) -> None:
        """Close after an answer, at once when nothing more of the caller's is on its way."""
        if self.cycle.more_body and not self.transport.is_closing():
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._closed = self._lingering = True
        self._patience.end()
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self._parting.linger()

    # --- bytes --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._later:
            self._later += data
            self.flow.pause_reading()
            if len(self._later) > _AHEAD_BYTES_MAX:  # a request that minds its caller reads on
                self._refuse(Code.BAD_REQUEST)
        elif self._way is None or not self._way.takes(data):
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._closed and not self.transport.is_closing():
            if len(self.pipeline) >= PIPELINED_MAX:
                self._later = bytes(view)
                self.flow.pause_reading()
                return
            if self._in_headers:
                self._patience.begin()
                piece, view = view[:_FEED_BYTES], view[_FEED_BYTES:]
            else:
                piece, view = view, view[:0]
            if not self._feed(piece):
                if self._handshake is not None and self._switch_at >= 0:
                    self._hand_over(self._handshake, bytes(piece[self._switch_at :]) + bytes(view))
                return

    def _feed(self, piece: memoryview) -> bool:
        """Parse one piece; False when the connection was refused or handed back."""
        was_in_headers = self._in_headers
        self._body_seen = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch_at = upgrade.args[0]
            # Not taken up: the request is answered as plain HTTP and the connection ends.
            self._closed = True
            return False
        except httptools.HttpParserError:
            self._refuse(self._verdict or Code.BAD_FRAMING)
            return False
        if self._in_headers and was_in_headers:
            # The parser hides what it holds of an unfinished line, so raw bytes are counted.
            self._header_bytes += len(piece)
            if self._header_bytes > self.limits.header_bytes + _FEED_BYTES:
                self._refuse(Code.HEADERS_TOO_LARGE)
                return False
        elif not self._in_headers and not self._body_seen:
            # Neither body nor an end of message: chunk extensions or trailers without end.
            self._tail_bytes += len(piece)
            if self._tail_bytes > self.limits.header_bytes:
                self._refuse(Code.HEADERS_TOO_LARGE)
                return False
        return True

    # --- beside the application -------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Whether a request could begin and be answered now, with nothing before it."""
        return (
            self._between
            and (self.cycle is None or self.cycle.response_complete)
            and not (self._closed or self.flow.write_paused or self.transport.is_closing())
        )

    def busy(self) -> None:
        """A request is under way beside the application."""
        self._patience.due = NEVER  # a call less for each request

    def answered(self, head: bytes, body: bytes) -> None:
        """Write the whole answer to it."""
        if not self.transport.is_closing():
            write_whole(self.transport, head, body)
        self.server_state.total_requests += 1
        self._patience.rest()

    def parsed(self, data: bytes, extensions: dict[str, Any]) -> bool:
        """Give bytes to the application, the first request with these extensions; whether they
        were one request, and nothing else."""
        self._beside, before = extensions, self._messages
        self._parse(data)
        left, self._beside = self._beside, {}
        return not left and self._between and self._messages == before + 1

    def shutdown(self) -> None:
        if self._way is not None:
            self._way.ends()
        super().shutdown()

    # --- parser callbacks -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_headers, self._between = True, False
        self._header_bytes = self._tail_bytes = self._parsed_bytes = 0
        self._messages += 1
        self._verdict = None
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.target_bytes:
            self._reject(Code.TARGET_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:
            return  # a trailer
        self._parsed_bytes += len(name) + len(value) + 4
        if (
            len(self.headers) >= self.limits.header_count
            or self._parsed_bytes > self.limits.header_bytes
        ):
            self._reject(Code.HEADERS_TOO_LARGE)
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._patience.stop()
        verdict = self._judge()
        if verdict is not None:
            self._reject(verdict)
        self.headers = self.scope["headers"] = list(self.headers)
        if self._handshake is not None:
            return
        self.scope["extensions"] = {
            ABORT: {"call": functools.partial(cut, self.transport)},
            **self._beside,
        }
        self._beside = {}
        super().on_headers_complete()
        self.cycle.transport = self._ending  # type: ignore[assignment]  # all that it uses
        self.scope["extensions"][OPEN] = {"call": functools.partial(whole, self.cycle)}
        self._open = [cycle for cycle in self._open if not cycle.response_complete]
        self._open.append(self.cycle)
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body_seen = True
        self._tail_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_headers = self._between = True
        self._body_seen = True
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return self._handshake is not None

    def _hand_over(self, handshake: Handshake, early: bytes) -> None:
        """Leave the connection to a socket, together with what its caller sent ahead."""
        from gateway.ingress.socket import CallerSocket  # its library loads where it is used

        self.connections.discard(self)
        self._patience.end()
        path, _, query = self.url.partition(b"?")
        scope = dict(self.scope)
        scope.update(
            type="websocket",
            scheme="wss" if self.scheme == "https" else "ws",
            method="GET",
            path=path.decode("ascii"),
            raw_path=path,
            query_string=query,
        )
        socket = CallerSocket(
            self.transport, scope, handshake, early, limits=self.limits, state=self.server_state
        )
        socket.run(self._inside)

    async def _inside(self, scope: Any, receive: Any, send: Any) -> None:
        """The application; a socket keeps its place in the share of its address until it ends."""
        try:
            await self.app(scope, receive, send)
        finally:
            self.door.leave(self._peer)

    # --- judgement ------------------------------------------------------------------------

    def _judge(self) -> Code | None:
        """What is wrong with a finished header block; None when it has one reading."""
        if len(self.connections) > self.limits.connections:
            return Code.OVERLOADED
        parser = self.parser
        found = judged(
            parser.get_method(),
            parser.get_http_version(),
            self.url,
            self.headers,
            upgrades=parser.should_upgrade(),
            sockets=self.sockets,
        )
        if not isinstance(found, Handshake):
            return found
        if any(not cycle.response_complete for cycle in self._open):
            return Code.BAD_REQUEST  # a socket has its connection for itself
        self._handshake = found
        return None

    def _reject(self, code: Code) -> None:
        """Stop the parser from inside a callback; ``_feed`` then refuses with ``code``."""
        self._verdict = code
        raise GatewayError(str(code))

    def _refuse(self, code: Code) -> None:
        if self._closed or self.transport.is_closing():
            return
        self._closed = True
        self._patience.stop()
        request_id = new_request_id()
        self.door.send_away(code, self._peer, request_id)
        running = [cycle for cycle in self._open if not cycle.response_complete]
        if running and running[-1].more_body:
            # The body of this request is broken: it ends as an abort, never as a short body.
            broken = running.pop()
            broken.disconnected = True
            broken.message_event.set()
            if broken.response_started:
                self.transport.abort()
                return
        if running:
            # An answer to an earlier request is under way: it may end, then the connection does.
            for cycle in running:
                cycle.keep_alive = False
            return
        self.transport.write(refusal_of(code, request_id))
        if code is Code.OVERLOADED:  # its place is needed
            self._parting.close()
        else:
            self._linger()


def guarded(
    limits: Limits, *, sockets: bool = False, door: Door | None = None, lane: Lane | None = None
) -> type[GuardedProtocol]:
    """A protocol class bound to one listener's limits, to be passed as uvicorn's ``http=``."""
    bound = {"limits": limits, "sockets": sockets, "door": door or Door(limits), "lane": lane}
    return type("BoundProtocol", (GuardedProtocol,), bound)
