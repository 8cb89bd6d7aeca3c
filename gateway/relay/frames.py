"""A WebSocket to an upstream over a connection of ours.

Frames are read and written by `websockets`' sans-I/O protocol; connection, times and
back-pressure are ours.

Laws
    * No extension, no redirect, no proxy, no header of its own besides the handshake's.
    * Messages are bounded before they are held.
    * A reader that does not read pauses the upstream; a writer waits for it.
    * Pings are between neighbours: theirs are answered here, and an upstream that answers none
      of ours is given up.

Source: RFC 6455; attack log rows W1-W3, S12; libraries Part B section 3 (pitfalls).
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.datastructures import Headers as WireHeaders
from websockets.exceptions import InvalidState, PayloadTooBig
from websockets.frames import EXTERNAL_CLOSE_CODES, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from gateway.relay.address import Address
from gateway.relay.dial import context_of, dial
from gateway.relay.exchange import HIGH_BYTES
from gateway.relay.upstream import (
    UpstreamError,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamTimes,
    UpstreamUnavailable,
)
from gateway.relay.websocket import (
    GOING_AWAY,
    LOST,
    NO_CODE,
    TOO_BIG,
    Closed,
    Message,
    MessageTooBig,
    Opening,
    SocketDeclined,
    SocketLimits,
    UpstreamSocket,
)

_OURS: Final = (b"sec-websocket-", b"upgrade", b"connection")


async def open_socket(
    address: Address,
    opening: Opening,
    *,
    times: UpstreamTimes,
    limits: SocketLimits,
    on_gone: Callable[[], None] = lambda: None,
) -> UpstreamSocket:
    """An open socket; ``on_gone`` is called once when its connection has ended.

    Raises: SocketDeclined; UpstreamError.
    """
    socket = await dial(
        address,
        lambda: Socket(address, opening, times=times, limits=limits, on_gone=on_gone),
        context=context_of(address),
        connect_s=times.connect_s,
    )
    try:
        async with asyncio.timeout(times.first_byte_s):
            await socket.opened
    except TimeoutError:
        socket.abort()
        raise UpstreamTimeout("no answer to a handshake in time") from None
    except BaseException:
        socket.abort()
        raise
    return socket


class Socket(asyncio.Protocol):
    """The upstream's end of a relayed socket."""

    def __init__(
        self,
        address: Address,
        opening: Opening,
        *,
        times: UpstreamTimes,
        limits: SocketLimits,
        on_gone: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._opening = opening
        self._times = times
        self._limits = limits
        self._on_gone = on_gone
        self._wire = ClientProtocol(
            WebSocketURI(address.tls, address.host, address.port, "/", ""),
            subprotocols=[Subprotocol(name) for name in opening.subprotocols] or None,
            max_size=limits.message_bytes,
        )
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._is_text = False
        self._messages: collections.deque[Message] = collections.deque()
        self._held_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._end: Closed | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writable: asyncio.Future[None] | None = None
        self._paused = self._heard = False
        self._ping: asyncio.TimerHandle | None = None
        self._unanswered = False
        self.sent_bytes = self.received_bytes = 0

    # --- for the relay ----------------------------------------------------------------------

    @property
    def subprotocol(self) -> str | None:
        return self._wire.subprotocol

    async def receive(self) -> Message | Closed:
        while not self._messages:
            if self._end is not None:
                return self._end
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        self._held_bytes -= len(message)
        if self._paused and self._held_bytes <= HIGH_BYTES // 2 and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return message

    async def send(self, message: Message) -> None:
        payload = message.encode() if isinstance(message, str) else message
        if len(payload) > self._limits.message_bytes:
            raise MessageTooBig("a message that is too big")
        try:
            if isinstance(message, str):
                self._wire.send_text(payload)
            else:
                self._wire.send_binary(payload)
        except InvalidState:
            raise UpstreamUnavailable("the socket is closed") from None
        self.sent_bytes += len(payload)
        self._flush()
        if self._writable is not None:
            try:
                async with asyncio.timeout(self._times.write_s):
                    await asyncio.shield(self._writable)
            except TimeoutError:
                raise UpstreamTimeout("the upstream does not read") from None

    async def close(self, end: Closed) -> None:
        if self._wire.state is State.OPEN:
            if end.code == NO_CODE:
                self._wire.send_close()
            elif end.code in EXTERNAL_CLOSE_CODES or 3000 <= end.code < 5000:
                self._wire.send_close(end.code, end.reason)
            else:
                self._wire.send_close(GOING_AWAY)
            self._flush()
        if self._paused and self._transport is not None:  # the answer stands behind messages
            self._paused = False
            self._transport.resume_reading()
        try:
            async with asyncio.timeout(self._limits.close_s):
                await asyncio.shield(self._lost)
        except TimeoutError:
            pass  # an upstream that does not answer a close has nothing more to say
        finally:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._wire.send_request(self._request())
        self._flush()

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.opened.done():
            self._refuse(UpstreamUnavailable("connection lost before an answer"))
        self._finish(Closed(LOST))
        if self._ping is not None:
            self._ping.cancel()
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(UpstreamUnavailable("connection lost while writing"))
            self._writable.exception()
        if not self._lost.done():
            self._lost.set_result(None)
            self._on_gone()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._wire.receive_data(data)
        self._read()

    def eof_received(self) -> bool:
        self._wire.receive_eof()
        self._read()
        return False

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # --- frames -----------------------------------------------------------------------------

    def _request(self) -> Request:
        headers = WireHeaders()
        for name, value in self._opening.headers:
            if not name.startswith(_OURS):
                headers[name.decode("ascii")] = value.decode("latin-1")
        headers["Upgrade"] = "websocket"
        headers["Connection"] = "Upgrade"
        headers["Sec-WebSocket-Key"] = self._wire.key
        headers["Sec-WebSocket-Version"] = "13"
        if self._opening.subprotocols:
            headers["Sec-WebSocket-Protocol"] = ", ".join(self._opening.subprotocols)
        return Request(self._opening.target.decode("ascii"), headers)

    def _flush(self) -> None:
        for data in self._wire.data_to_send():
            if self._transport is None or self._transport.is_closing():
                return
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()

    def _read(self) -> None:
        for event in self._wire.events_received():
            if isinstance(event, Response):
                self._answered(event)
            elif isinstance(event, Frame):
                self._frame(event)
        if self._wire.handshake_exc is not None:
            self._refuse(
                UpstreamInvalid("the answer to a handshake cannot be parsed")
                if self._heard
                else UpstreamUnavailable("connection lost before an answer")
            )
        fault = self._wire.parser_exc
        if fault is not None:
            self._finish(Closed(TOO_BIG if isinstance(fault, PayloadTooBig) else LOST))
        self._flush()
        self._bound()

    def _bound(self) -> None:
        """Hold no more than may be held: of messages nobody takes, of pongs nobody reads."""
        transport = self._transport
        if transport is None:
            return
        if self._held_bytes > HIGH_BYTES and not self._paused:
            self._paused = True
            transport.pause_reading()
        if transport.get_write_buffer_size() > HIGH_BYTES + 2 * self._limits.message_bytes:
            self._finish(Closed(LOST))
            self.abort()

    def _answered(self, response: Response) -> None:
        if response.status_code != 101:
            self._refuse(SocketDeclined(response.status_code))
        elif self._wire.handshake_exc is not None:
            self._refuse(UpstreamInvalid("a handshake that is not ours"))
        elif not self.opened.done():
            self.opened.set_result(None)
            self._ping = self._loop.call_later(self._limits.ping_s, self._beat)

    def _frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.TEXT | Opcode.BINARY:
                self._is_text = frame.opcode is Opcode.TEXT
                self._parts = [bytes(frame.data)]
            case Opcode.CONT:
                if frame.data:  # fragments of nothing would be held without end
                    self._parts.append(bytes(frame.data))
            case Opcode.PONG:
                self._unanswered = False
                return
            case Opcode.CLOSE:
                close = self._wire.close_rcvd
                self._finish(Closed(NO_CODE) if close is None else Closed(close.code, close.reason))
                return
            case _:
                return
        if frame.fin:
            self._put(b"".join(self._parts))
            self._parts = []

    def _put(self, whole: bytes) -> None:
        if self._end is not None:
            return
        try:
            message: Message = whole.decode() if self._is_text else whole
        except UnicodeDecodeError:
            self._wire.fail(1007)
            self._finish(Closed(LOST))
            return
        self._messages.append(message)
        self.received_bytes += len(whole)
        self._held_bytes += len(message)
        self._wake()

    def _beat(self) -> None:
        if self._wire.state is not State.OPEN:
            return
        if self._unanswered:
            self._finish(Closed(LOST))
            self.abort()
            return
        self._unanswered = True
        self._wire.send_ping(b"")
        self._flush()
        self._ping = self._loop.call_later(self._limits.ping_s, self._beat)

    # --- ends -------------------------------------------------------------------------------

    def _refuse(self, error: UpstreamError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # read: the opener may have left
            self.abort()

    def _finish(self, end: Closed) -> None:
        if self._end is None:
            self._end = end
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
