"""The socket between a supervisor and one worker: orders down, words up, and its end.

An order is a frame of bytes with its length before it; what stands in a first and in a later one
is not known here. A worker answers with one line of JSON: ``ready`` with its second listener's
port, or ``failed`` with a code, a reason and a remedy. When either process ends, however it does,
the other sees the end of the socket.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import Final

from gateway.errors import GatewayError

_LENGTH: Final = struct.Struct(">I")
_LINE_BYTES_MAX: Final = 64 * 1024


class StartFailed(GatewayError):
    """A worker cannot serve, and says why as the whole gateway would."""

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        self.code = code
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{code}: {reason}; {remedy}")


def framed(order: bytes) -> bytes:
    """An order as it is sent."""
    return _LENGTH.pack(len(order)) + order


def receive_order(channel: socket.socket) -> bytes:
    """The first order; blocks. Raises: EOFError when the supervisor is gone."""
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    return _exactly(channel, length)


def _exactly(channel: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = channel.recv(count - len(found))
        if not piece:
            raise EOFError("the supervisor is gone")
        found += piece
    return found


async def next_order(reader: asyncio.StreamReader) -> bytes | None:
    """A later order; None when the supervisor is gone."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


def say_ready(channel: socket.socket, port: int) -> None:
    """Tell the supervisor where this worker's second listener is."""
    channel.sendall(json.dumps({"ready": port}).encode() + b"\n")


def say_failed(channel: socket.socket, code: str, reason: str, remedy: str) -> None:
    """Tell the supervisor why this worker cannot serve."""
    told = {"failed": {"code": code, "reason": reason[:4_000], "remedy": remedy}}
    channel.sendall(json.dumps(told).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Words:
    """The supervisor's side of what a worker says."""

    reader: asyncio.StreamReader

    async def ready(self) -> int:
        """The port of the worker's second listener.

        Raises: StartFailed; EOFError when it ended without a word.
        """
        line = await self.reader.readline()
        if not line:
            raise EOFError("ended without a word")
        told = json.loads(line)
        if "failed" in told:
            raise StartFailed(**told["failed"])
        return int(told["ready"])


async def words_of(channel: socket.socket) -> tuple[Words, asyncio.StreamWriter]:
    """What the worker at the other end says; the writer is to be closed."""
    channel.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=channel, limit=_LINE_BYTES_MAX)
    return Words(reader), writer
