"""A caller's WebSocket as an ASGI connection, once its handshake has been read.

ASGI carries the answer to the handshake. What is accepted is relayed leg to leg: the application
finds the caller's in the scope (``LEG``).

Laws
    * Nothing a caller sends is read as a frame before it is accepted: it is held, and lost
      with a refusal.
    * No extension.
    * A refusal is an ordinary HTTP answer (ASGI ``websocket.http.response``).

Source: RFC 6455; attack log rows W1, S12, D3, D5.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from uvicorn.server import ServerState
from websockets.utils import accept_key

from gateway.ingress.abort import ABORT, cut
from gateway.ingress.handshake import LEG, Handshake
from gateway.ingress.limits import Limits
from gateway.ingress.parser import STATUS_LINE
from gateway.wire.closing import RESTART, Closed
from gateway.wire.leg import Leg

CLOSE_S: Final = 4.0
"""How long a caller may take to answer a close, and its last bytes to leave."""
_LOG: Final = logging.getLogger("gateway.socket")


class CallerSocket:
    """Takes a connection over from HTTP, with what the caller sent ahead, and runs the
    application on it."""

    def __init__(
        self,
        transport: asyncio.Transport,
        scope: MutableMapping[str, Any],
        handshake: Handshake,
        early: bytes = b"",
        *,
        limits: Limits,
        state: ServerState,
    ) -> None:
        self._leg = leg = Leg(
            masked=True, message_bytes=limits.message_bytes, ping_s=limits.ping_s, close_s=CLOSE_S
        )
        self._transport = transport
        self._key = handshake.key
        self._state = state
        scope["subprotocols"] = list(handshake.subprotocols)
        scope["extensions"] = {
            ABORT: {"call": functools.partial(cut, transport)},
            LEG: {"leg": leg},
            "websocket.http.response": {},
        }
        self._scope = scope
        self._connected = self._answered = self._accepted = False
        self._status, self._head = 0, b""
        state.connections.add(self)  # type: ignore[arg-type]  # anything with `shutdown`
        leg.lost.add_done_callback(lambda _: state.connections.discard(self))
        leg.take(transport, early)

    def run(self, app: Callable[..., Any]) -> None:
        """Start the application; the connection ends with it."""
        task = asyncio.get_running_loop().create_task(self._run(app))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    async def _run(self, app: Callable[..., Any]) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 - the connection ends, nothing is answered
            _LOG.error("a socket ended by %s", type(error).__name__)
            self._leg.abort()
        finally:
            self._leg.leave()

    async def receive(self) -> dict[str, Any]:
        """``connect`` once, then how it ended, as often as it is asked."""
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        end = await asyncio.shield(self._leg.ended)
        return {"type": "websocket.disconnect", "code": end.code, "reason": end.reason}

    async def send(self, message: dict[str, Any]) -> None:
        """The answer to the handshake. Raises: OSError when the caller has left."""
        if self._transport.is_closing():
            raise ConnectionResetError("the caller has left")
        if self._answered:
            raise RuntimeError("a socket is answered once")
        match message["type"]:
            case "websocket.accept":
                self._accept(message.get("subprotocol"), message.get("headers", ()))
            case "websocket.http.response.start":
                self._status = message["status"]
                self._head = _lines(message.get("headers", ()))
            case "websocket.http.response.body":
                self._refuse(message.get("body", b""))
            case kind:
                raise RuntimeError(f"`{kind}` is no answer to a handshake")

    def _accept(self, subprotocol: str | None, headers: Any) -> None:
        self._answered = self._accepted = True
        chosen = [(b"sec-websocket-protocol", subprotocol.encode("ascii"))] if subprotocol else []
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: %b\r\n"
            % accept_key(self._key).encode("ascii")
            + _lines([*chosen, *headers, *self._state.default_headers])
            + b"\r\n"
        )

    def _refuse(self, body: bytes) -> None:
        self._answered = True
        self._transport.write(
            STATUS_LINE[self._status]
            + self._head
            + _lines(self._state.default_headers)
            + b"connection: close\r\n\r\n"
            + body
        )
        self._leg.leave()

    def shutdown(self) -> None:
        """The server ends; whoever could be told has been told before."""
        end = Closed(RESTART)
        if self._accepted:
            self._leg.tell(end)
        self._leg.finish(end)
        self._leg.leave()


def _lines(headers: Any) -> bytes:
    return b"".join(b"%b: %b\r\n" % (bytes(name), bytes(value)) for name, value in headers)
