"""The two listeners: a guarded HTTP/1.1 protocol and the runner that starts and drains it.

Laws
    * A request reaches the application only with one reading: one valid Host, an origin-form
      target, one framing, header names and counts within bounds.
    * Headers are frozen when the header block ends. Trailers never become headers.
    * Nobody holds a connection without sending: idle, half-sent and endless header blocks end
      in 408 or 431 and a closed connection.
    * An answer to a bad pipelined request is never written into an answer under way.

The C parser is required. Without it uvicorn would silently fall back to a pure-Python one
that keeps ambiguous connections open.

Source: attack log section 4 and rows A5, A14, A16, B2, B13, D1, D4, S1-S14.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import PROBLEM_JSON, Code, GatewayError, problem_body, status_of
from gateway.ingress.abort import ABORT
from gateway.ingress.limits import Limits
from gateway.ingress.normalise import origin_form, valid_host
from gateway.ingress.provenance import new_request_id

if importlib.util.find_spec("httptools") is None:  # pragma: no cover - a broken installation
    raise GatewayError("`httptools` is not installed; reinstall the locked requirements")

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

if TYPE_CHECKING:
    from types import FrameType

_FEED_BYTES: Final = 4096
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})


class PortTaken(GatewayError):  # noqa: N818 - reads as what it is
    """A listener's address is in use or not ours to bind."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol, with the checks it leaves to others.

    Set ``limits`` through :func:`guarded`; one class per listener.
    """

    limits: Limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_headers = True
        self._header_bytes = 0
        self._tail_bytes = 0
        self._body_seen = False
        self._verdict: Code | None = None
        self._closed = False
        self._open: list[RequestResponseCycle] = []
        self._deadline: asyncio.TimerHandle | None = None

    # --- time ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # theirs
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._closed = True
        # uvicorn tells only the newest request; the one under way may be an earlier one
        self.pipeline.clear()
        for cycle in self._open:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_s, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self._refuse(Code.REQUEST_TIMEOUT)

    # --- bytes --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        view = memoryview(data)
        while view and not self._closed and not self.transport.is_closing():
            if self._in_headers:
                self._arm()
                piece, view = view[:_FEED_BYTES], view[_FEED_BYTES:]
            else:
                piece, view = view, view[:0]
            if not self._feed(piece):
                return

    def _feed(self, piece: memoryview) -> bool:
        """Parse one piece; False when the connection was refused or handed back."""
        was_in_headers = self._in_headers
        self._body_seen = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
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

    # --- parser callbacks -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_headers = True
        self._header_bytes = 0
        self._tail_bytes = 0
        self._parsed_bytes = 0
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
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._disarm()
        verdict = self._judge()
        if verdict is not None:
            self._reject(verdict)
        self.headers = self.scope["headers"] = list(self.headers)
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
        super().on_headers_complete()
        self._open = [cycle for cycle in self._open if not cycle.response_complete]
        self._open.append(self.cycle)
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body_seen = True
        self._tail_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_headers = True
        self._body_seen = True
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False

    # --- judgement ------------------------------------------------------------------------

    def _judge(self) -> Code | None:
        """What is wrong with a finished header block; None when it has one reading."""
        if len(self.connections) > self.limits.connections:
            return Code.OVERLOADED
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            return Code.VERSION_UNSUPPORTED
        if self.parser.get_method() not in _METHODS:
            return Code.METHOD_NOT_ALLOWED
        if not origin_form(self.url):
            return Code.BAD_PATH
        found: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            if not _TOKEN.fullmatch(name) or _BAD_VALUE.search(value):
                return Code.BAD_REQUEST
            found.setdefault(name, []).append(value.strip(b" \t"))
        hosts = found.get(b"host", [])
        if len(hosts) != 1 or not valid_host(hosts[0]):
            return Code.BAD_HOST
        return self._framing(found, version)

    def _framing(self, found: dict[bytes, list[bytes]], version: str) -> Code | None:
        lengths = found.get(b"content-length", [])
        codings = found.get(b"transfer-encoding", [])
        if len(lengths) > 1 or not all(_DIGITS.fullmatch(length) for length in lengths):
            return Code.BAD_FRAMING
        if codings and (codings != [b"chunked"] or lengths or version == "1.0"):
            return Code.BAD_FRAMING
        if any(value.lower() != b"100-continue" for value in found.get(b"expect", [])):
            return Code.EXPECTATION_FAILED
        if self.parser.should_upgrade():
            if codings or lengths:
                return Code.BAD_FRAMING
            if any(b"websocket" in value.lower() for value in found.get(b"upgrade", [])):
                return Code.UPGRADE_UNSUPPORTED
        return None

    def _reject(self, code: Code) -> None:
        """Stop the parser from inside a callback; ``_feed`` then refuses with ``code``."""
        self._verdict = code
        raise GatewayError(str(code))

    def _refuse(self, code: Code) -> None:
        if self._closed or self.transport.is_closing():
            return
        self._closed = True
        self._disarm()
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
        body = problem_body(code, request_id := new_request_id())
        head = [
            STATUS_LINE[status_of(code)],
            b"content-type: ",
            PROBLEM_JSON,
            b"\r\ncontent-length: %d\r\n" % len(body),
            b"x-request-id: ",
            request_id.encode("ascii"),
            b"\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
        ]
        self.transport.write(b"".join((*head, body)))
        self.transport.close()


def guarded(limits: Limits) -> type[GuardedProtocol]:
    """A protocol class bound to one listener's limits, to be passed as uvicorn's ``http=``."""
    return type("BoundProtocol", (GuardedProtocol,), {"limits": limits})


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 picks a free one.

    Raises: PortTaken, with the address and what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY on such sockets only; without it each
    # kept-alive answer waits up to 40 ms for the caller's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise PortTaken(
            f"cannot listen on `{host}:{port}` ({error.strerror}); "
            "stop what listens there or set another address"
        ) from error
    sock.set_inheritable(False)
    return sock


class _Server(uvicorn.Server):
    """A server that leaves signals to :func:`serve`, which owns both of them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()


def server_for(app: Any, limits: Limits, *, graceful_s: float) -> _Server:
    """One guarded uvicorn server around an ASGI callable; start it with a bound socket."""
    return _Server(
        uvicorn.Config(
            app,
            http=guarded(limits),
            ws="none",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            date_header=True,
            access_log=False,
            log_config=None,
            timeout_keep_alive=int(limits.keep_alive_s),
            timeout_graceful_shutdown=int(graceful_s),
        )
    )


async def serve(
    data_app: Any,
    admin_app: Any,
    *,
    data_socket: socket.socket,
    admin_socket: socket.socket,
    limits: Limits,
    on_drain: Callable[[], Awaitable[None]],
    drain_wait_s: float,
    graceful_s: float,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve both listeners until SIGTERM, SIGINT or ``stop``; return when both have drained.

    Order of the end: ``on_drain`` (readiness turns false), ``drain_wait_s`` for a load
    balancer to see it, the data listener stops and its requests end within ``graceful_s``,
    then the second listener stops. A second signal skips the waits.
    """
    stop = stop or asyncio.Event()
    data = server_for(data_app, limits, graceful_s=graceful_s)
    admin = server_for(admin_app, limits, graceful_s=1.0)
    with _signals(stop, (data, admin)):
        tasks = [
            asyncio.create_task(data.serve(sockets=[data_socket]), name="data listener"),
            asyncio.create_task(admin.serve(sockets=[admin_socket]), name="second listener"),
        ]
        waiting = asyncio.create_task(stop.wait())
        try:
            await asyncio.gather(data.up.wait(), admin.up.wait())
            if on_ready is not None:
                await on_ready()
            await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            await on_drain()
            if not data.force_exit:
                await asyncio.sleep(drain_wait_s)
            data.should_exit = True
            await tasks[0]
        finally:
            waiting.cancel()
            data.should_exit = admin.should_exit = True
            await asyncio.gather(*tasks)


@contextlib.contextmanager
def _signals(stop: asyncio.Event, servers: Sequence[uvicorn.Server]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: FrameType | None = None) -> None:
        if stop.is_set():
            for server in servers:
                server.force_exit = True
        loop.call_soon_threadsafe(stop.set)

    previous = {}
    with contextlib.suppress(ValueError):  # not the main thread: the owner uses ``stop``
        for number in (signal.SIGTERM, signal.SIGINT):
            previous[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
