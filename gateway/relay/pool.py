"""Keep-alive connections to one upstream, for one audience.

A pool is never shared between audiences: if an upstream ever answers the wrong question on
a kept connection, the bytes stay inside the audience that was asked for.

The one retry is explicit: a reused connection, not one byte of an answer, no request body,
an idempotent method. Everything else fails to the caller.
"""

from __future__ import annotations

import asyncio
import collections
import ssl
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any

from gateway.relay.address import Address as Address
from gateway.relay.connection import Connection
from gateway.relay.dial import context_of, dial
from gateway.relay.exchange import Exchange
from gateway.relay.loan import Loan
from gateway.relay.places import Places
from gateway.relay.reading import Readings
from gateway.relay.upstream import (
    UpstreamBusy,
    UpstreamInvalid,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTimes,
    UpstreamUnavailable,
    head_of,
    repeatable,
    whole,
)


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
    _readings: Readings = field(default_factory=Readings, init=False)
    _places: Places = field(init=False)
    _tls: ssl.SSLContext | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._places = Places(self.limit)
        self._tls = context_of(self.address)  # read once

    async def request(self, request: UpstreamRequest) -> UpstreamResponse:
        if not self._places.take():
            await self._turn()
        turn = _Turn(self._places)
        try:
            connection = self._reusable()
            if connection is None:
                return await self._send(await self._connect(), request, turn)
            answer = self._send(connection, request, turn)
            return await self._second_try(connection, answer, request, turn)
        except BaseException:
            turn.end()
            raise

    def lend(self) -> Loan | None:
        """A kept connection for one GET, with its place; see `relay.loan`."""
        if not self._idle or not self._places.take():
            return None
        connection = self._reusable()
        if connection is None:
            self._places.give()
            return None
        return Loan(self, connection, self._places.give)

    async def resume(self, loan: Loan, request: UpstreamRequest) -> UpstreamResponse:
        """The answer to what was asked over a loan; see `relay.loan`."""
        turn = _Turn(self._places)
        try:
            answer = self._answered(loan, turn)
            return await self._second_try(loan.connection, answer, request, turn)
        except BaseException:
            turn.end()
            raise

    async def _second_try(
        self,
        connection: Connection,
        answer: Awaitable[_Held],
        request: UpstreamRequest,
        turn: _Turn,
    ) -> _Held:
        """The answer over a kept connection; when that was dead, over a new one."""
        try:
            return await answer
        except UpstreamUnavailable:
            if connection.heard or not repeatable(request):
                raise
        try:
            second = await self._connect()
        except UpstreamUnavailable as error:
            error.unsent = False  # it was sent, over the dead connection
            raise
        return await self._send(second, request, turn, repeated=True)

    async def _answered(self, loan: Loan, turn: _Turn) -> _Held:
        try:
            exchange = await loan.answered()
        except UpstreamUnavailable as error:
            error.again = not loan.connection.heard
            raise
        return _Held(exchange, turn, loan.connection, None)

    @property
    def occupancy(self) -> tuple[int, int]:
        """Connections in use, and idle ones."""
        return len(self._open) - len(self._idle), len(self._idle)

    async def aclose(self) -> None:
        for connection in list(self._open):
            connection.abort()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(self.times.connect_s):
                await self._places.wait()
        except TimeoutError:
            raise UpstreamBusy("every connection is in use") from None

    def _reusable(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.loop.time() - connection.idle_since < self.idle_s and connection.fresh():
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        connection = await dial(
            self.address,
            lambda: Connection(
                times=self.times,
                readings=self._readings,
                on_free=self._idle.append,
                on_gone=self._forget,
            ),
            context=self._tls,
            connect_s=self.times.connect_s,
        )
        self._open.add(connection)
        # Over TLS the unread bytes may be a session ticket; decrypted ones are seen on arrival.
        if self._tls is None and not connection.fresh():
            connection.abort()
            raise UpstreamInvalid("the upstream spoke before it was asked")
        return connection

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _send(
        self,
        connection: Connection,
        request: UpstreamRequest,
        turn: _Turn,
        *,
        repeated: bool = False,
    ) -> _Held:
        exchange = connection.begin(request.method)
        head = exchange.head()
        sender: asyncio.Task[None] | None = None
        try:
            await connection.write(head_of(request))
            if request.body is None:
                connection.sent()
            else:
                sender = asyncio.create_task(_send_body(connection, request))
                both: set[asyncio.Future[Any]] = {sender, head}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if sender.done() and not head.done():
                    sender.result()
            await head
        except BaseException as error:
            connection.abandon(exchange)
            if sender is not None:
                sender.cancel()
            if isinstance(error, UpstreamUnavailable) and not connection.heard:
                error.again = repeatable(request) and not repeated
            raise
        if sender is not None and not sender.done():
            if exchange.status >= 400:
                sender.cancel()  # refused: nothing more of the body is of use
            else:
                sender.add_done_callback(lambda done: _sent_or_failed(done, connection))
        return _Held(exchange, turn, connection, sender)


class _Turn:
    """One place in the pool, given back once."""

    __slots__ = ("_places",)

    def __init__(self, places: Places) -> None:
        self._places: Places | None = places

    def end(self) -> None:
        if self._places is not None:
            self._places.give()
            self._places = None


class _Held:
    """A response that holds its place in the pool until it is closed."""

    __slots__ = ("_connection", "_exchange", "_sender", "_turn", "headers", "status")

    def __init__(
        self,
        exchange: Exchange,
        turn: _Turn,
        connection: Connection,
        sender: asyncio.Task[None] | None,
    ) -> None:
        self.status = exchange.status
        self.headers = exchange.headers
        self._exchange = exchange
        self._turn = turn
        self._connection = connection
        self._sender = sender

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._exchange

    @property
    def done(self) -> bool:
        return self._exchange.done

    async def aclose(self) -> None:
        if self._sender is not None:
            if not self._sender.done() or self._sender.cancelled():
                self._sender.cancel()
                self._connection.abort()  # its request was not sent to the end
            self._sender = None
        await self._exchange.aclose()
        self._turn.end()


def _sent_or_failed(sender: asyncio.Task[None], connection: Connection) -> None:
    """A body that could not be sent to its end, after its answer began: both are cut."""
    if not sender.cancelled() and sender.exception() is not None:
        connection.fail(UpstreamInvalid("the request was not sent to its end"))


async def _send_body(connection: Connection, request: UpstreamRequest) -> None:
    if request.body is None:
        return
    async for piece in whole(request.body, request.body_bytes):
        await connection.write(
            b"%x\r\n%b\r\n" % (len(piece), piece) if request.body_bytes is None else piece
        )
    if request.body_bytes is None:
        await connection.write(b"0\r\n\r\n")
    connection.sent()
