"""The upstream of the streams suite: echoes sockets, tells events, gives and takes long bodies.

It runs in the process of the bench, so that what is seen on both sides of a proxy is seen by one
clock and checked byte for byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final, cast

from websockets.speedups import apply_mask
from websockets.utils import accept_key

ECHO: Final = "/portal/employee/echo"
EVENTS: Final = "/portal/employee/events"
DOWN: Final = "/portal/employee/down"
UP: Final = "/portal/employee/up"
PIECE: Final = bytes(256 * 1024)


class Portal:
    """What the upstream holds: the streams that want events, and when each connection ended."""

    def __init__(self) -> None:
        self.port = 0
        self.offered_bytes = 1
        self.taken_bytes = 0
        self.listeners: set[asyncio.Transport] = set()
        self.ended_at: asyncio.Queue[float] = asyncio.Queue()

    def tell(self, event: bytes) -> None:
        """One event to every stream that is open."""
        chunk = b"%x\r\n%b\r\n" % (len(event), event)
        for transport in self.listeners:
            transport.write(chunk)


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Portal]:
    """A portal that listens."""
    loop, portal = asyncio.get_running_loop(), Portal()
    server = await loop.create_server(lambda: _Visit(portal), "127.0.0.1", 0, backlog=1024)
    portal.port = server.sockets[0].getsockname()[1]
    try:
        yield portal
    finally:
        server.close()


class _Visit(asyncio.Protocol):
    """One connection of a proxy's."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._held = b""
        self._echoes = False
        self._left = 0
        self._offer: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._echoes or self._transport in self._portal.listeners:
            self._portal.ended_at.put_nowait(time.monotonic())
        if self._transport is not None:
            self._portal.listeners.discard(self._transport)
        if self._offer is not None:
            self._offer.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._take(data)
            return
        self._held += data
        if self._echoes:
            self._echo()
        elif b"\r\n\r\n" in self._held:
            head, _, self._held = self._held.partition(b"\r\n\r\n")
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        assert self._transport is not None
        first, *rest = head.decode("latin-1").split("\r\n")
        path = first.split(" ")[1]
        found = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        if path == ECHO:
            self._echoes = True
            self._transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: %b\r\n\r\n"
                % accept_key(found["sec-websocket-key"]).encode()
            )
        elif path == EVENTS:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n8\r\n: open\n\n\r\n"
            )
            self._portal.listeners.add(self._transport)
        elif path == DOWN:
            self._offer = self._loop.create_task(self._offered(self._portal.offered_bytes))
        else:
            self._portal.taken_bytes = 0
            self._left = int(found["content-length"])
            held, self._held = self._held, b""
            self._take(held)

    async def _offered(self, size: int) -> None:
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: %d\r\n\r\n" % size
        )
        while size > 0:
            await self._writable.wait()
            self._transport.write(PIECE[: min(size, len(PIECE))])
            size -= len(PIECE)

    def _take(self, data: bytes) -> None:
        assert self._transport is not None
        self._left -= len(data)
        self._portal.taken_bytes += len(data)
        if not self._left:
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def _echo(self) -> None:
        assert self._transport is not None
        while True:
            size, start = self._held[1] & 0x7F if len(self._held) > 1 else 0, 6
            if size == 126:
                size, start = int.from_bytes(self._held[2:4], "big"), 8
            if len(self._held) < max(start, start + size):
                return
            frame, self._held = self._held[: start + size], self._held[start + size :]
            payload = apply_mask(frame[start:], frame[start - 4 : start])
            if frame[0] == 0x88:
                self._transport.write(b"\x88" + bytes([len(payload)]) + payload)
                self._transport.close()
                return
            if frame[0] != 0x8A:
                opcode = 0x8A if frame[0] == 0x89 else frame[0]
                self._transport.write(unmasked(opcode, payload))


def unmasked(first: int, payload: bytes) -> bytes:
    """A frame of a server."""
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    return bytes((first, 126)) + size.to_bytes(2, "big") + payload
