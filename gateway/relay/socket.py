"""A WebSocket to an upstream over a connection of ours: its handshake, then a leg.

The handshake is written, parsed and judged by `websockets`, without its connection.

Laws
    * No extension, no redirect, no proxy, no header of its own besides the handshake's.
    * Frames that stand behind the handshake's answer are the leg's.

Source: RFC 6455 section 4; attack log rows W1-W3; libraries Part B section 3 (pitfalls).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.datastructures import Headers as WireHeaders
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.http11 import Request, Response
from websockets.streams import StreamReader
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from gateway.relay.address import Address
from gateway.relay.dial import context_of, dial
from gateway.relay.upstream import (
    UpstreamError,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamTimes,
    UpstreamUnavailable,
)
from gateway.relay.websocket import Opening, SocketDeclined, SocketLimits
from gateway.wire.leg import Leg

_OURS: Final = (b"sec-websocket-", b"upgrade", b"connection")
_HEAD_BYTES_MAX: Final = 64 * 1024
_HEAD_END: Final = b"\r\n\r\n"


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
    leg = Leg(
        masked=False,
        message_bytes=limits.message_bytes,
        ping_s=limits.ping_s,
        close_s=limits.close_s,
        stall_s=times.write_s,
    )
    leg.lost.add_done_callback(lambda _: on_gone())
    shake = await dial(
        address,
        lambda: _Handshake(address, opening, leg),
        context=context_of(address),
        connect_s=times.connect_s,
    )
    try:
        async with asyncio.timeout(times.first_byte_s):
            await shake.answered
    except TimeoutError:
        shake.transport.abort()
        raise UpstreamTimeout("no answer to a handshake in time") from None
    except BaseException:
        shake.transport.abort()
        raise
    return UpstreamSocket(leg, shake.subprotocol)


@dataclass(frozen=True, slots=True)
class UpstreamSocket:
    """The upstream's leg of a socket, and the subprotocol that the upstream chose."""

    leg: Leg
    subprotocol: str | None


class _Handshake(asyncio.Protocol):
    """A connection until its handshake is answered; then it is the leg's."""

    def __init__(self, address: Address, opening: Opening, leg: Leg) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leg = leg
        self._opening = opening
        self._head = bytearray()
        self._protocol = ClientProtocol(
            WebSocketURI(address.tls, address.host, address.port, "/", ""),
            subprotocols=[Subprotocol(name) for name in opening.subprotocols] or None,
        )

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    # --- asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request().serialize())

    def connection_lost(self, _exc: Exception | None) -> None:
        self._refuse(UpstreamUnavailable("connection lost before an answer"))

    def data_received(self, data: bytes) -> None:
        known = len(self._head)
        self._head += data
        end = self._head.find(_HEAD_END, max(0, known - len(_HEAD_END)))
        if end >= 0:
            self._judge(end + len(_HEAD_END))
        elif len(self._head) > _HEAD_BYTES_MAX:
            self._refuse(UpstreamInvalid("an answer to a handshake without end"))

    def eof_received(self) -> bool:
        if self._head:
            self._refuse(UpstreamInvalid("the answer to a handshake cannot be parsed"))
        return False

    # --- handshake --------------------------------------------------------------------------

    def _request(self) -> Request:
        headers = WireHeaders()
        for name, value in self._opening.headers:
            if not name.startswith(_OURS):
                headers[name.decode("ascii")] = value.decode("latin-1")
        headers["Upgrade"] = "websocket"
        headers["Connection"] = "Upgrade"
        headers["Sec-WebSocket-Key"] = self._protocol.key
        headers["Sec-WebSocket-Version"] = "13"
        if self._opening.subprotocols:
            headers["Sec-WebSocket-Protocol"] = ", ".join(self._opening.subprotocols)
        return Request(self._opening.target.decode("ascii"), headers)

    def _judge(self, end: int) -> None:
        """Judge the answer's head, which ends at ``end``; a body of a refusal is not read."""
        head, rest = bytes(self._head[:end]), bytes(self._head[end:])
        self._head.clear()
        response = _response(head)
        if response is None:
            self._refuse(UpstreamInvalid("the answer to a handshake cannot be parsed"))
            return
        try:
            self._protocol.process_response(response)
        except InvalidStatus:
            self._refuse(SocketDeclined(response.status_code))
        except InvalidHandshake:
            self._refuse(UpstreamInvalid("a handshake that is not ours"))
        else:
            self._leg.take(self.transport, rest)
            if not self.answered.done():
                self.answered.set_result(None)

    def _refuse(self, error: UpstreamError) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)
            self.answered.exception()  # read: whoever dialled may have left
            self.transport.abort()


def _response(head: bytes) -> Response | None:
    """The status and headers in these bytes; None when they have no reading."""
    reader = StreamReader()
    reader.feed_data(head)
    parser = Response.parse(reader.read_line, reader.read_exact, reader.read_to_eof, proxy=True)
    try:
        next(parser)
    except StopIteration as parsed:
        response: Response = parsed.value
        return response if head.startswith(b"HTTP/1.1 ") else None
    except (EOFError, LookupError, ValueError, WebSocketException):
        return None
    return None
