"""A caller's socket: its handshake, and what is held of one that floods.

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
from gateway.ingress.socket import CallerSocket
from gateway.wire.leg import HELD_BYTES_MAX, Leg

EMPTY = b"\x81\x80\x00\x00\x00\x00"
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
        if accept:
            await found.send({"type": "websocket.accept"})
        try:
            await scene(found, transport, theirs)
        finally:
            transport.abort()
            theirs.close()
            await asyncio.sleep(0)

    asyncio.run(main())


def test_flood_before_the_answer_stops_the_reading() -> None:
    """S12: bytes are held, not frames; what is held is bounded."""

    async def scene(found: CallerSocket, transport: asyncio.Transport, _: socket.socket) -> None:
        sent = 0
        while transport.is_reading():
            found._leg.data_received(EMPTY * 100)
            sent += 100
            assert sent * len(EMPTY) <= 2 * HELD_BYTES_MAX
        assert found._leg._reader is None

    play(scene, accept=False)


def test_application_hears_of_the_end_as_often_as_it_asks() -> None:
    """A caller that leaves before it is accepted is noticed by whoever dials for it."""

    async def scene(found: CallerSocket, _: asyncio.Transport, theirs: socket.socket) -> None:
        assert (await found.receive())["type"] == "websocket.connect"
        theirs.close()
        for _one in range(2):
            assert await found.receive() == {
                "type": "websocket.disconnect", "code": 1006, "reason": ""
            }  # fmt: skip
        await asyncio.sleep(0)
        assert not found._state.connections
        with pytest.raises(OSError, match="has left"):
            await found.send({"type": "websocket.accept"})

    play(scene, accept=False)


@pytest.mark.parametrize("accept", [True, False])
def test_server_that_ends_says_so_to_those_that_are_open(accept: bool) -> None:
    """1012 on a socket; before there is one nothing that could be taken for an answer."""

    async def scene(found: CallerSocket, _: asyncio.Transport, theirs: socket.socket) -> None:
        found.shutdown()
        assert (await found.receive())["type"] == "websocket.connect"
        assert (await found.receive())["code"] == 1012
        theirs.settimeout(10)
        heard = b""
        while piece := await asyncio.to_thread(theirs.recv, 65536):
            heard += piece
        assert heard.endswith(b"\x88\x02\x03\xf4") if accept else heard == b""

    play(scene, accept=accept)


def test_handshake_is_answered_once_and_with_nothing_else() -> None:
    """Messages are the legs'; an application that sends one has a defect."""

    async def scene(found: CallerSocket, _: asyncio.Transport, __: socket.socket) -> None:
        with pytest.raises(RuntimeError, match="once"):
            await found.send({"type": "websocket.accept"})

    play(scene)

    async def other(found: CallerSocket, _: asyncio.Transport, __: socket.socket) -> None:
        with pytest.raises(RuntimeError, match="no answer"):
            await found.send({"type": "websocket.send", "text": "x"})

    play(other, accept=False)


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

    async def scene(found: CallerSocket, __: asyncio.Transport, theirs: socket.socket) -> None:
        ours, upstream = socket.socketpair()
        leg = Leg(masked=False, message_bytes=10_000, ping_s=20, close_s=1)
        made, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        leg.take(made)
        found._leg.join(leg)
        found._leg.data_received(frame)
        assert leg.messages == 0
        assert (await found.receive())["type"] == "websocket.connect"
        assert (await found.receive())["code"] == (1009 if code == 1009 else 1006)
        theirs.settimeout(10)
        heard = b""
        while piece := await asyncio.to_thread(theirs.recv, 65536):
            heard += piece
        assert b"\x88" in heard
        assert code.to_bytes(2, "big") in heard.rpartition(b"\x88")[2]
        leg.abort()
        upstream.close()

    play(scene)
