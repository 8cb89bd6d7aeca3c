"""A raw-socket upstream that does what a script says, and records what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

from gateway.relay.address import Address

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """One accepted connection, as the upstream sees it. ``number`` counts from 0."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        number: int,
        requests: list[bytes],
    ) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer
        self._requests = requests

    async def head(self) -> bytes:
        """The header block of the next request; empty when the client is gone."""
        try:
            return await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial

    async def request(self) -> bytes:
        """The next request with its body, recorded; empty when the client is gone."""
        head = await self.head()
        if not head.endswith(b"\r\n\r\n"):
            return b""
        request = head + await self._body(head)
        self._requests.append(request)
        return request

    async def _body(self, head: bytes) -> bytes:
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return await self._reader.readexactly(int(line.partition(b":")[2]))
            if line.startswith(b"transfer-encoding:"):
                body = b""
                while not body.endswith(b"0\r\n\r\n"):
                    body += await self._reader.readuntil(b"\n")
                return body
        return b""

    async def read(self, size: int) -> bytes:
        return await self._reader.read(size)

    async def say(self, *pieces: bytes) -> None:
        """Write each piece by itself, as soon as the client reads."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()

    async def gone(self) -> None:
        """Wait until the client has closed; what it still sends is thrown away."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def reset(self) -> None:
        """End the connection with RST: nobody may take it for an end of a body."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Upstream:
    """What listens: its address, how many connections it accepted, what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.accepted = 0
        self.requests: list[bytes] = []
        self.faults: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = Address(host="127.0.0.1", port=1)

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = Address(host="127.0.0.1", port=port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self.faults, self.faults

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer, self.accepted, self.requests)
        self.accepted += 1
        try:
            await self.script(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has cut the connection, as it may
        except asyncio.CancelledError:
            pass  # the test is over
        except Exception as error:  # noqa: BLE001 - shown at the end of the test
            self.faults.append(error)
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(ConnectionError):
                writer.close()


def answers(*pieces: bytes, end: bool = False) -> Script:
    """Each request is answered with ``pieces``; ``end`` closes the connection afterwards."""

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.say(*pieces)
            if end:
                return

    return script


async def pieces_of(*pieces: bytes) -> AsyncIterator[bytes]:
    """A request's body."""
    for piece in pieces:
        yield piece
