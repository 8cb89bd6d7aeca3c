"""Keep-alive connections to one upstream, for one audience.

A pool is never shared between audiences: if an upstream ever answers the wrong question on
a kept connection, the bytes stay inside the audience that was asked for.

The one retry is explicit: a reused connection, not one byte of an answer, no request body,
GET or HEAD. Everything else fails to the caller.
"""

from __future__ import annotations

import asyncio
import collections
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.relay.connection import Connection, Exchange
from gateway.relay.upstream import (
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTimeout,
    UpstreamTimes,
    UpstreamUnavailable,
)

_RETRIED: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an upstream listens.

    ``tls`` verifies the name, against ``ca_file`` when it is given, else against the system's
    trust store.
    """

    host: str
    port: int
    tls: bool = False
    ca_file: str = ""

    @property
    def authority(self) -> bytes:
        """The Host value that goes with it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        standard = self.port == (443 if self.tls else 80)
        return (host if standard else f"{host}:{self.port}").encode("ascii")


@dataclass(slots=True, kw_only=True)
class Pool:
    """An :class:`UpstreamTransport` over kept connections, newest first.

    ``limit`` bounds exchanges at once; a request waits for its turn as long as it may wait
    for a connection. ``idle_s`` is how long an unused connection is trusted.
    """

    address: Address
    times: UpstreamTimes = field(default_factory=UpstreamTimes)
    limit: int = 256
    idle_s: float = 30.0
    _idle: collections.deque[Connection] = field(default_factory=collections.deque, init=False)
    _open: set[Connection] = field(default_factory=set, init=False)
    _turns: asyncio.Semaphore = field(init=False)
    _tls: ssl.SSLContext | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(self.limit)
        if self.address.tls:  # read once: it costs milliseconds and a look at the disk
            self._tls = ssl.create_default_context(cafile=self.address.ca_file or None)

    async def request(self, request: UpstreamRequest) -> UpstreamResponse:
        try:
            async with asyncio.timeout(self.times.connect_s):
                await self._turns.acquire()
        except TimeoutError:
            raise UpstreamUnavailable("every connection is in use") from None
        turn = _Turn(self._turns)
        try:
            connection = self._reusable()
            reused = connection is not None
            connection = connection or await self._connect()
            try:
                exchange = await self._send(connection, request)
            except UpstreamUnavailable:
                if connection.heard or not reused or not _may_retry(request):
                    raise
                exchange = await self._send(await self._connect(), request)
        except BaseException:
            turn.end()
            raise
        return _Held(exchange, turn)

    async def aclose(self) -> None:
        for connection in list(self._open):
            connection.abort()

    def _reusable(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < self.idle_s and connection.fresh():
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        address = self.address
        try:
            async with asyncio.timeout(self.times.connect_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(
                        times=self.times, on_free=self._idle.append, on_gone=self._forget
                    ),
                    address.host,
                    address.port,
                    ssl=self._tls,
                )
        except TimeoutError:
            raise UpstreamUnavailable("no connection in time") from None
        except OSError as error:
            raise UpstreamUnavailable(f"no connection: {error.strerror}") from error
        self._open.add(connection)
        return connection

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _send(self, connection: Connection, request: UpstreamRequest) -> Exchange:
        head = connection.begin(request.method)
        sender: asyncio.Task[None] | None = None
        try:
            await connection.write(_head_of(request))
            if request.body is not None:
                sender = asyncio.create_task(_send_body(connection, request))
                both: set[asyncio.Future[Any]] = {sender, head}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if sender.done():
                    sender.result()
                else:
                    connection.keep_for_none()  # answered before it was asked to the end
            try:
                async with asyncio.timeout(self.times.first_byte_s):
                    return await head
            except TimeoutError:
                raise UpstreamTimeout("no answer in time") from None
        except BaseException:
            connection.abort()
            raise
        finally:
            if sender is not None and not sender.done():
                sender.cancel()


class _Turn:
    """One place in the pool, given back once."""

    __slots__ = ("_turns",)

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns: asyncio.Semaphore | None = turns

    def end(self) -> None:
        if self._turns is not None:
            self._turns.release()
            self._turns = None


class _Held:
    """A response that holds its place in the pool until it is closed."""

    __slots__ = ("_exchange", "_turn", "headers", "status")

    def __init__(self, exchange: Exchange, turn: _Turn) -> None:
        self.status = exchange.status
        self.headers = exchange.headers
        self._exchange = exchange
        self._turn = turn

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._exchange

    @property
    def done(self) -> bool:
        return self._exchange.done

    async def aclose(self) -> None:
        await self._exchange.aclose()
        self._turn.end()


def _may_retry(request: UpstreamRequest) -> bool:
    return request.body is None and request.method in _RETRIED


def _head_of(request: UpstreamRequest) -> bytes:
    parts = [request.method.encode("ascii"), b" ", request.target, b" HTTP/1.1\r\n"]
    for name, value in request.headers:
        parts += (name, b": ", value, b"\r\n")
    if request.body is not None:
        if request.body_bytes is None:
            parts.append(b"transfer-encoding: chunked\r\n")
        else:
            parts.append(b"content-length: %d\r\n" % request.body_bytes)
    elif request.method in {"POST", "PUT", "PATCH"}:
        parts.append(b"content-length: 0\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


async def _send_body(connection: Connection, request: UpstreamRequest) -> None:
    if request.body is None:
        return
    chunked = request.body_bytes is None
    async for piece in request.body:
        if piece:
            await connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        await connection.write(b"0\r\n\r\n")
