"""A caller's WebSocket as an ASGI connection, once its handshake has been read.

Frames are read and written by `websockets`' sans-I/O protocol; connection, times and
back-pressure are ours, as towards upstreams (``relay.frames``).

Laws
    * Nothing a caller sends is read as a frame before it is accepted: it is held, and lost
      with a refusal.
    * No extension. Messages are bounded before they are held; of those that nobody takes, and
      of pongs that nobody reads, no more is held than one read of the loop brings.
    * A refusal is an ordinary HTTP answer (ASGI ``websocket.http.response``).

Source: RFC 6455; attack log rows W1, S12, D3, D5.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from uvicorn.server import ServerState
from websockets.exceptions import InvalidState, PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.utils import accept_key

from gateway.ingress.abort import ABORT
from gateway.ingress.handshake import Handshake
from gateway.ingress.limits import Limits
from gateway.ingress.parser import STATUS_LINE

HELD_BYTES_MAX: Final = 64 * 1024
"""What is held of a caller that speaks before it is accepted, and of messages nobody takes."""
CLOSE_S: Final = 4.0
"""How long a caller may take to answer a close, and its last bytes to leave."""
RESTART: Final = 1012
_MESSAGE_BYTES: Final = 128
"""What a message takes besides its bytes: a flood of empty ones is a flood."""
_NO_CODE: Final = 1005
_LOST: Final = 1006
_TOO_BIG: Final = 1009
_LOG: Final = logging.getLogger("gateway.socket")


class CallerSocket(asyncio.Protocol):
    """Takes a connection over from HTTP and runs the application on it."""

    def __init__(
        self,
        transport: asyncio.Transport,
        scope: MutableMapping[str, Any],
        handshake: Handshake,
        *,
        limits: Limits,
        state: ServerState,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._key = handshake.key
        self._limits = limits
        self._state = state
        scope["subprotocols"] = list(handshake.subprotocols)
        scope["extensions"] = {ABORT: {"call": transport.abort}, "websocket.http.response": {}}
        self._scope = scope
        self._wire = ServerProtocol(state=State.OPEN, max_size=limits.message_bytes)
        self._early = bytearray()
        self._accepted = self._answered = self._connected = False
        self._status, self._head = 0, b""
        self._parts: list[bytes] = []
        self._is_text = False
        self._messages: collections.deque[tuple[str | bytes, int]] = collections.deque()
        self._held_bytes = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._end: tuple[int, str] | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writable: asyncio.Future[None] | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._unanswered = False
        state.connections.add(self)  # type: ignore[arg-type]  # anything with `shutdown`

    def run(self, app: Callable[..., Any]) -> None:
        """Start the application; the connection ends with it."""
        task = self._loop.create_task(self._run(app))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    async def _run(self, app: Callable[..., Any]) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 - the connection ends, nothing is answered
            _LOG.error("a socket ended by %s", type(error).__name__)
            self._transport.abort()
        finally:
            self._leave()

    # --- for the application ----------------------------------------------------------------

    async def receive(self) -> dict[str, Any]:
        """``connect`` once, then messages, then how it ended, as often as it is asked."""
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        while not self._messages:
            if self._end is not None:
                code, reason = self._end
                return {"type": "websocket.disconnect", "code": code, "reason": reason}
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message, size = self._messages.popleft()
        self._held_bytes -= size
        if self._held_bytes <= HELD_BYTES_MAX // 2:
            self._resume()
        if isinstance(message, str):
            return {"type": "websocket.receive", "text": message}
        return {"type": "websocket.receive", "bytes": message}

    async def send(self, message: dict[str, Any]) -> None:
        """Raises OSError when the caller has left. Waits while it does not read."""
        kind = message["type"]
        if self._transport.is_closing() and not self._wire.close_sent:
            raise ConnectionResetError("the caller has left")
        if kind == "websocket.send":
            self._message(message)
        elif kind == "websocket.accept":
            self._accept(message.get("subprotocol"), message.get("headers", ()))
        elif kind == "websocket.close":
            await self._close(message.get("code", 1000), message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            self._status = message["status"]
            self._head = _lines(message.get("headers", ()))
        elif kind == "websocket.http.response.body":
            self._refuse(message.get("body", b""))
        else:
            raise RuntimeError(f"`{kind}` is nothing that a socket knows")
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def _message(self, message: dict[str, Any]) -> None:
        if not self._accepted:
            raise RuntimeError("a message before the socket is accepted")
        text = message.get("text")
        try:
            if text is not None:
                self._wire.send_text(text.encode())
            else:
                self._wire.send_binary(message["bytes"])
        except InvalidState:
            raise ConnectionResetError("the caller has left") from None
        self._flush()

    def _accept(self, subprotocol: str | None, headers: Any) -> None:
        if self._answered:
            raise RuntimeError("a socket is answered once")
        self._answered = self._accepted = True
        chosen = [(b"sec-websocket-protocol", subprotocol.encode("ascii"))] if subprotocol else []
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: %b\r\n"
            % accept_key(self._key).encode("ascii")
            + _lines([*chosen, *headers, *self._state.default_headers])
            + b"\r\n"
        )
        self._ping = self._loop.call_later(self._limits.ping_s, self._beat)
        early, self._early = bytes(self._early), bytearray()
        self._resume()
        if early:
            self.data_received(early)

    def _refuse(self, body: bytes) -> None:
        if self._answered:
            raise RuntimeError("a socket is answered once")
        self._answered = True
        self._transport.write(
            STATUS_LINE[self._status]
            + self._head
            + _lines(self._state.default_headers)
            + b"connection: close\r\n\r\n"
            + body
        )
        self._leave()

    async def _close(self, code: int, reason: str) -> None:
        if self._wire.state is State.OPEN:
            self._wire.send_close(code, reason)
            self._flush()
        self._resume()  # its answer stands behind messages that nobody wants any more
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(self._lost)
        except TimeoutError:
            self._transport.abort()

    # --- asyncio ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._accepted:
            self._early += data
            if len(self._early) > HELD_BYTES_MAX:
                self._pause()
            return
        self._wire.receive_data(data)
        for event in self._wire.events_received():
            if isinstance(event, Frame):
                self._frame(event)
        fault = self._wire.parser_exc
        self._flush()
        if fault is not None:
            self._finish(_TOO_BIG if isinstance(fault, PayloadTooBig) else _LOST)
            self._leave()
        elif self._wire.close_rcvd is not None:
            self._leave()
        elif self._held_bytes > HELD_BYTES_MAX:
            self._pause()
        if (
            self._transport.get_write_buffer_size()
            > HELD_BYTES_MAX + 2 * self._limits.message_bytes
        ):
            self._finish(_LOST)
            self._transport.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._finish(_LOST)
        if self._ping is not None:
            self._ping.cancel()
        if not self._lost.done():
            self._lost.set_result(None)
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def shutdown(self) -> None:
        """The server ends; whoever could be told has been told before."""
        if self._accepted and self._wire.state is State.OPEN:
            self._wire.send_close(RESTART)
            self._flush()
        self._finish(RESTART)
        self._leave()

    # --- frames -----------------------------------------------------------------------------

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
                if close is None:
                    self._finish(_NO_CODE)
                else:
                    self._finish(close.code, close.reason)
                return
            case _:
                return
        if frame.fin:
            self._put(b"".join(self._parts))
            self._parts = []

    def _put(self, whole: bytes) -> None:
        if self._end is not None or self._wire.close_sent is not None:
            return
        try:
            message = whole.decode() if self._is_text else whole
        except UnicodeDecodeError:
            self._wire.fail(1007)
            self._finish(_LOST)
            self._flush()
            self._leave()
            return
        size = len(whole) + _MESSAGE_BYTES
        self._messages.append((message, size))
        self._held_bytes += size
        self._wake()

    def _flush(self) -> None:
        for data in self._wire.data_to_send():
            if data and not self._transport.is_closing():
                self._transport.write(data)

    def _beat(self) -> None:
        if self._wire.state is not State.OPEN or self._transport.is_closing():
            return
        if self._unanswered:
            self._finish(_LOST)
            self._transport.abort()
            return
        self._unanswered = True
        self._wire.send_ping(b"")
        self._flush()
        self._ping = self._loop.call_later(self._limits.ping_s, self._beat)

    # --- ends -------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Close when the last bytes are taken, which must not take for ever."""
        if not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(CLOSE_S, self._transport.abort)

    def _finish(self, code: int, reason: str = "") -> None:
        if self._end is None:
            self._end = code, reason
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()


def _lines(headers: Any) -> bytes:
    return b"".join(b"%b: %b\r\n" % (bytes(name), bytes(value)) for name, value in headers)
