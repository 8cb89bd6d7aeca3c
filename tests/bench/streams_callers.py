"""The callers of the streams suite: small protocols over sockets, checked byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, cast

from websockets.speedups import apply_mask

from tests.bench.streams_portal import DOWN, ECHO, EVENTS, PIECE, UP, unmasked

_KEY: Final = b"\x37\xfa\x21\x3d"
_TEXT: Final = 0x81


@dataclass(frozen=True, slots=True)
class Door:
    """A proxy's port, and the token with which it is asked."""

    port: int
    token: str

    def get(self, path: str, *lines: str) -> bytes:
        return self._head("GET", path, *lines)

    def post(self, path: str, size: int) -> bytes:
        return self._head("POST", path, f"Content-Length: {size}")

    def socket(self) -> bytes:
        return self.get(
            ECHO,
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )

    def _head(self, method: str, path: str, *lines: str) -> bytes:
        more = "".join(line + "\r\n" for line in lines)
        return (
            f"{method} {path} HTTP/1.1\r\nHost: bench.test\r\n"
            f"Authorization: Bearer {self.token}\r\n{more}\r\n"
        ).encode("ascii")


class Caller(asyncio.Protocol):
    """Sends a head, reads the answer's; what comes after it is its heir's."""

    def __init__(self, head: bytes, status: bytes) -> None:
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._head, self._status = head, status
        self._held: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._head)

    def data_received(self, data: bytes) -> None:
        if self._held is None:
            self.came(data)
            return
        self._held += data
        if b"\r\n\r\n" in self._held:
            head, _, rest = self._held.partition(b"\r\n\r\n")
            self._held = None
            assert head.split(b" ")[1] == self._status, head
            self.began.set_result(None)
            if rest:
                self.came(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.began.done():
            self.began.set_exception(exc or ConnectionResetError("no answer"))

    def came(self, data: bytes) -> None:
        """What follows the answer's head."""


class Pinger(Caller):
    """Sends one message and, when it came back whole and unchanged, the next."""

    def __init__(self, door: Door, first: int, payload: bytes) -> None:
        super().__init__(door.socket(), b"101")
        plain = unmasked(first, payload)
        start = len(plain) - len(payload)
        masked = bytes((plain[0], plain[1] | 0x80)) + plain[2:start]
        self._out = masked + _KEY + apply_mask(payload, _KEY)
        self._back = plain
        self._here = b""
        self.rounds = 0
        self.running = True

    def ask(self) -> None:
        assert self.transport is not None
        self.transport.write(self._out)

    def came(self, data: bytes) -> None:
        self._here = here = self._here + data if self._here else data
        if len(here) < len(self._back):
            return
        assert here == self._back, here[:40]
        self._here = b""
        self.rounds += 1
        if self.running:
            self.ask()


class Listener(Caller):
    """Counts the events of a stream."""

    def __init__(self, door: Door) -> None:
        super().__init__(door.get(EVENTS), b"200")
        self.events = 0

    def came(self, data: bytes) -> None:
        self.events += data.count(b"\n\n")


@contextlib.asynccontextmanager
async def callers(door: Door, made: list[Caller]) -> AsyncIterator[None]:
    """These callers, each with its answer begun; cut afterwards."""
    loop = asyncio.get_running_loop()
    try:
        for one in made:
            await loop.create_connection(lambda one=one: one, "127.0.0.1", door.port)  # type: ignore[misc]
            async with asyncio.timeout(30):
                await one.began
        yield
    finally:
        for one in made:
            if one.transport is not None:
                one.transport.abort()


def text(size: int, door: Door) -> Pinger:
    return Pinger(door, _TEXT, b"x" * size)


def binary(size: int, door: Door) -> Pinger:
    return Pinger(door, _TEXT + 1, bytes(range(256)) * (size // 256))


def download(door: Door, size: int) -> int:
    """Read a body of this size; how many bytes it had. Blocks."""
    room = bytearray(1024 * 1024)
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as sock:
        sock.sendall(door.get(DOWN))
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(65536)
        assert head.split(b" ")[1] == b"200", head
        came = len(head.partition(b"\r\n\r\n")[2])
        while came < size and (more := sock.recv_into(room)):
            came += more
    return came


def upload(door: Door, size: int) -> bytes:
    """Send a body of this size; the answer. Blocks."""
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as sock:
        sock.sendall(door.post(UP, size))
        left = size
        while left > 0:
            sock.sendall(PIECE[: min(left, len(PIECE))])
            left -= len(PIECE)
        answer = b""
        while not answer.endswith(b"ok") and (more := sock.recv(65536)):
            answer += more
    return answer


def silent(door: Door) -> socket.socket:
    """A caller that asks for a long body and reads nothing of it. To be closed."""
    sock = socket.create_connection(("127.0.0.1", door.port), timeout=60)
    sock.sendall(door.get(DOWN))
    return sock
