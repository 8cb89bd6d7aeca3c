"""A WebSocket relay between our own listener and an upstream of the test's own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.server import ServerState
from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Frame, Opcode
from websockets.speedups import apply_mask

from gateway.ingress.handshake import LEG
from gateway.ingress.limits import Limits
from gateway.ingress.protocol import guarded
from gateway.relay.address import Address
from gateway.relay.duplex import Relayed, relay_messages
from gateway.relay.socket import open_socket
from gateway.relay.stream import Truncated
from gateway.relay.upstream import UpstreamError, UpstreamTimes
from gateway.relay.websocket import Opening, SocketLimits
from gateway.wire.closing import Closed
from gateway.wire.leg import Leg
from tests.gateway.relay.hostile import Peer, Script, Upstream

LIMITS = SocketLimits(message_bytes=100_000, ping_s=20, close_s=5)
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass
class Relay:
    """What a test sees of one relay: where callers go, what became of their sockets."""

    port: int
    upstream: Upstream
    end: asyncio.Future[Closed]
    legs: list[tuple[Leg, Leg]] = field(default_factory=list)
    relayed: list[Relayed] = field(default_factory=list)
    truncated: list[Truncated] = field(default_factory=list)
    refused: list[UpstreamError] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.asynccontextmanager
    async def caller(self, **options: Any) -> AsyncIterator[ClientConnection]:
        options = {"compression": None, "ping_interval": None, "proxy": None, **options}
        async with connect(f"ws://127.0.0.1:{self.port}/a?b=1", **options) as one:
            yield one

    async def outcome(self) -> Relayed:
        await self.finished.wait()
        return self.relayed[-1]


@contextlib.asynccontextmanager
async def relay(
    script: Script, *, limits: SocketLimits = LIMITS, times: UpstreamTimes | None = None
) -> AsyncIterator[Relay]:
    """A relay to an upstream that does what ``script`` says."""
    loop = asyncio.get_running_loop()
    async with Upstream(script) as upstream:
        found = Relay(0, upstream, loop.create_future())
        app = _app(found, upstream.address, limits, times or UpstreamTimes())
        bounds = Limits(message_bytes=limits.message_bytes, ping_s=limits.ping_s)
        protocol = guarded(bounds, sockets=True)
        config = uvicorn.Config(app, http=protocol, ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
        found.port = server.sockets[0].getsockname()[1]
        try:
            yield found
        finally:
            server.close()
            for connection in list(state.connections):
                connection.shutdown()
            await asyncio.gather(*state.tasks, return_exceptions=True)


def _app(found: Relay, address: Address, limits: SocketLimits, times: UpstreamTimes) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        opening = Opening(
            target=scope["raw_path"] + b"?" + scope["query_string"],
            headers=((b"host", b"upstream.test"), (b"x-gateway-subject", b"s")),
            subprotocols=tuple(scope["subprotocols"]),
        )
        try:
            socket = await open_socket(address, opening, times=times, limits=limits)
        except UpstreamError as error:
            found.refused.append(error)
            await send({"type": "websocket.http.response.start", "status": 502})
            await send({"type": "websocket.http.response.body"})
            return
        await send({"type": "websocket.accept", "subprotocol": socket.subprotocol})
        caller: Leg = scope["extensions"][LEG]["leg"]
        found.legs.append((caller, socket.leg))
        try:
            found.relayed.append(await relay_messages(caller, socket.leg, end=found.end))
        except Truncated as truncated:
            found.truncated.append(truncated)
        found.finished.set()

    return app


class Frames:
    """The upstream's side of a socket, frame by frame."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def say(self, opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> None:
        await self._peer.say(Frame(opcode, data, fin).serialize(mask=False))

    async def close(self, code: int | None = None, reason: bytes = b"") -> None:
        await self.say(Opcode.CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason)

    async def hear(self) -> tuple[Opcode, bytes]:
        """The next frame of the client, unmasked."""
        head = await self._exactly(2)
        size = head[1] & 0x7F
        if size == 126:
            size = int.from_bytes(await self._exactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await self._exactly(8), "big")
        assert head[1] & 0x80, "a client masks"
        mask = await self._exactly(4)
        return Opcode(head[0] & 0x0F), apply_mask(await self._exactly(size), mask)

    async def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = await self._peer.read(size - len(data))
            if not piece:
                raise ConnectionResetError("the client is gone")
            data += piece
        return data


def accepted(request: bytes, *extra: bytes) -> bytes:
    """The answer of an upstream that takes a handshake."""
    for line in request.split(b"\r\n"):
        if line.lower().startswith(b"sec-websocket-key:"):
            key = line.partition(b":")[2].strip()
    proof = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
    lines = [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + proof,
        *extra,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def speaks(talk: Callable[[Frames], Awaitable[None]], *extra: bytes) -> Script:
    """An upstream that takes the handshake and then talks in frames."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        if request:
            await peer.say(accepted(request, *extra))
            await talk(Frames(peer))

    return script


async def echoes(frames: Frames) -> None:
    """Sends every message back, and a close as well."""
    while True:
        opcode, data = await frames.hear()
        await frames.say(opcode, data)
        if opcode is Opcode.CLOSE:
            return
