"""What a caller's socket holds, against one that floods.

Provenance: attack log rows D3 and S12; architecture section 2.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from uvicorn.server import ServerState

from gateway.ingress.handshake import Handshake
from gateway.ingress.limits import Limits
from gateway.ingress.socket import HELD_BYTES_MAX, CallerSocket

EMPTY = b"\x81\x80\x00\x00\x00\x00"
PING = b"\x89\xfd" + b"\x00" * 4 + b"x" * 125
LIMITS = Limits(message_bytes=10_000)
Scene = Callable[[CallerSocket, asyncio.Transport, socket.socket], Coroutine[Any, Any, None]]


def play(scene: Scene, *, accept: bool = True) -> None:
    """A socket over a real connection, whose application takes nothing."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        state = ServerState()
        found = CallerSocket(
            transport, {}, Handshake("dGhlIHNhbXBsZSBub25jZQ==", ()), limits=LIMITS, state=state
        )
        transport.set_protocol(found)
        if accept:
            await found.send({"type": "websocket.accept"})
        try:
            await scene(found, transport, theirs)
        finally:
            transport.abort()
            theirs.close()
            await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.parametrize("accept", [True, False])
def test_flood_of_empty_messages_stops_the_reading(accept: bool) -> None:
    """Each takes memory, though it has no byte; before an answer they are bytes held."""

    async def scene(found: CallerSocket, transport: asyncio.Transport, _: socket.socket) -> None:
        sent = 0
        while transport.is_reading():
            found.data_received(EMPTY * 100)
            sent += 100
            assert sent * len(EMPTY) <= 2 * HELD_BYTES_MAX

    play(scene, accept=accept)


def test_reading_goes_on_when_messages_are_taken() -> None:
    """Nothing is lost by waiting."""

    async def scene(found: CallerSocket, transport: asyncio.Transport, _: socket.socket) -> None:
        sent = 0
        while transport.is_reading():
            found.data_received(EMPTY * 100)
            sent += 100
        assert (await found.receive())["type"] == "websocket.connect"
        for _one in range(sent):
            assert (await found.receive())["text"] == ""
        assert transport.is_reading()

    play(scene)


def test_flood_of_pings_whose_answers_nobody_reads_ends_the_connection() -> None:
    """Pongs are held for a caller that does not read, but not without end."""

    async def scene(found: CallerSocket, transport: asyncio.Transport, _: socket.socket) -> None:
        sent = 0
        while not transport.is_closing():
            found.data_received(PING * 100)
            sent += 100
            assert sent * len(PING) <= 16 * 1024 * 1024
        assert (await found.receive())["type"] == "websocket.connect"
        assert (await found.receive())["code"] == 1006

    play(scene)


def test_fragments_of_nothing_are_not_held() -> None:
    """A message of endless empty fragments is bounded by its bytes, hence never grows."""

    async def scene(found: CallerSocket, _: asyncio.Transport, __: socket.socket) -> None:
        found.data_received(b"\x01\x80\x00\x00\x00\x00" + b"\x00\x80\x00\x00\x00\x00" * 10_000)
        assert len(found._parts) == 1

    play(scene)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x05hello", 1002),
        (b"\x81\x81\x00\x00\x00\x00\xff", 1007),
        (b"\xc1\x80\x00\x00\x00\x00", 1002),
        (b"\x83\x80\x00\x00\x00\x00", 1002),
        (b"\x82\xfe\x27\x11\x00\x00\x00\x00", 1009),
    ],
    ids=["unmasked", "not UTF-8", "reserved bit", "reserved opcode", "too big"],
)
def test_frame_that_is_none_ends_the_connection(frame: bytes, code: int) -> None:
    """RFC 6455: the caller is told its fault, the application that its caller is lost."""

    async def scene(found: CallerSocket, _: asyncio.Transport, theirs: socket.socket) -> None:
        found.data_received(frame)
        assert (await found.receive())["type"] == "websocket.connect"
        assert (await found.receive())["code"] == (1009 if code == 1009 else 1006)
        theirs.settimeout(10)
        heard = b""
        while piece := await asyncio.to_thread(theirs.recv, 65536):
            heard += piece
        assert b"\x88" in heard
        assert code.to_bytes(2, "big") in heard.rpartition(b"\x88")[2]

    play(scene)
