"""WebSockets through the relay: frames that are broken or too big, and sides that do not read.

Provenance: RFC 6455; attack log rows W1-W3, S12, D3, D5, O15; libraries Part B section 3.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import needs

needs("websockets")

from websockets.exceptions import ConnectionClosed  # noqa: E402
from websockets.frames import Opcode  # noqa: E402

from gateway.relay.upstream import UpstreamTimes  # noqa: E402
from gateway.wire.closing import Closed  # noqa: E402
from tests.gateway.relay.hostile import Peer  # noqa: E402
from tests.gateway.relay.sockets import (  # noqa: E402
    Frames,
    accepted,
    relay,
    speaks,
)


def test_fragments_arrive_as_one_message_with_control_frames_in_between() -> None:
    """RFC 6455 section 5.4: a ping may stand between fragments, and is answered at once."""
    pong: list[tuple[Opcode, bytes]] = []

    async def talk(frames: Frames) -> None:
        await frames.say(Opcode.TEXT, b"a", fin=False)
        await frames.say(Opcode.PING, b"now")
        pong.append(await frames.hear())
        await frames.say(Opcode.CONT, "é".encode()[:1], fin=False)
        await frames.say(Opcode.CONT, b"", fin=False)
        await frames.say(Opcode.CONT, "é".encode()[1:] + b"b")
        await frames.hear()

    async def scenario() -> str | bytes:
        async with relay(speaks(talk)) as between, between.caller() as caller:
            return await caller.recv()

    assert run(scenario()) == "aéb"
    assert pong == [(Opcode.PONG, b"now")]


@pytest.mark.parametrize("pieces", [[100_001], [60_000, 60_000]], ids=["frame", "fragments"])
def test_message_of_an_upstream_that_is_too_big_ends_the_socket(pieces: list[int]) -> None:
    """1009 on both sides; nothing of it is passed on, also when it comes in fragments."""
    found: list[tuple[Opcode, bytes]] = []

    async def talk(frames: Frames) -> None:
        for place, size in enumerate(pieces):
            opcode = Opcode.CONT if place else Opcode.BINARY
            await frames.say(opcode, b"x" * size, fin=place == len(pieces) - 1)
        found.append(await frames.hear())

    async def scenario() -> tuple[int | None, Closed]:
        async with relay(speaks(talk)) as between, between.caller() as caller:
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            return caller.close_code, (await between.outcome()).end

    assert run(scenario()) == (1009, Closed(1009))
    assert found[0][1][:2] == (1009).to_bytes(2, "big")


def test_message_of_a_caller_that_is_too_big_never_reaches_the_upstream() -> None:
    """The relay's own bound, below the server's."""
    found: list[tuple[Opcode, bytes]] = []

    async def talk(frames: Frames) -> None:
        found.append(await frames.hear())

    async def scenario() -> int | None:
        async with relay(speaks(talk)) as between, between.caller() as caller:
            await caller.send(b"x" * 100_001)
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            return caller.close_code

    assert run(scenario()) == 1009
    assert [opcode for opcode, _ in found] == [Opcode.CLOSE]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x81\x01\xff", id="bad UTF-8"),
        pytest.param(b"\xc1\x01a", id="reserved bit"),
        pytest.param(b"\x83\x01a", id="unknown opcode"),
        pytest.param(b"\x81\x81\x00\x00\x00\x00a", id="masked by a server"),
        pytest.param(b"\x80\x01a", id="continuation of nothing"),
        pytest.param(b"\x01\x01a\x81\x01b", id="a message inside a message"),
        pytest.param(b"\x89\x7e\x00\x7e" + b"a" * 126, id="long ping"),
        pytest.param(b"\x09\x01a", id="fragmented ping"),
        pytest.param(b"\x88\x01a", id="close of one byte"),
    ],
)
def test_broken_frame_ends_the_socket_and_is_passed_to_nobody(raw: bytes) -> None:
    """The caller learns that its upstream failed; it never gets a frame with two readings."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.say(accepted(request) + raw)
        await peer.gone()

    async def scenario() -> tuple[list[str | bytes], int | None]:
        async with relay(script) as between, between.caller() as caller:
            came: list[str | bytes] = []
            with pytest.raises(ConnectionClosed):
                came.append(await caller.recv())
            return came, caller.close_code

    assert run(scenario()) == ([], 1011)


def test_upstream_waits_for_a_caller_that_does_not_read() -> None:
    """D3: what is under way between the two stays bounded, and all of it arrives."""
    sent = 0
    silent = asyncio.Event()

    async def talk(frames: Frames) -> None:
        nonlocal sent
        for _ in range(800):
            try:
                async with asyncio.timeout(1):
                    await frames.say(Opcode.BINARY, b"x" * 50_000)
            except TimeoutError:
                silent.set()
                await frames.say(Opcode.PONG)  # waits until there is room
            sent += 50_000
        await frames.close(1000)

    async def scenario() -> tuple[int, int]:
        async with relay(speaks(talk)) as between, between.caller(max_queue=1) as caller:
            await silent.wait()
            held = sent
            return held, sum([len(message) async for message in caller])

    held, taken = run(scenario())
    assert held < 16 * 1024 * 1024
    assert taken == 800 * 50_000


def test_caller_waits_for_an_upstream_that_does_not_read() -> None:
    """A fast caller fills no memory of ours; the socket ends when the upstream never reads."""

    async def deaf(_: Frames) -> None:
        await asyncio.Event().wait()

    async def scenario() -> tuple[int, Closed]:
        times = UpstreamTimes(write_s=30)
        async with relay(speaks(deaf), times=times) as between, between.caller() as caller:
            sent = 0
            try:
                for _ in range(2_000):
                    await caller.send(b"x" * 50_000)
                    sent += 50_000
            except ConnectionClosed:
                pass
            return sent, (await between.outcome()).end

    sent, end = run(scenario())
    assert sent < 16 * 1024 * 1024
    assert end == Closed(1006)


def test_pings_that_are_not_read_fill_no_memory() -> None:
    """An upstream that floods pings and reads no pong is read, answered within bounds, and cut."""

    async def talk(frames: Frames) -> None:
        for _ in range(200):
            await frames._peer.say((b"\x89\x7d" + b"p" * 125) * 1000)
        flooded.set()
        await asyncio.Event().wait()

    flooded = asyncio.Event()

    async def scenario() -> tuple[Closed, int]:
        async with relay(speaks(talk)) as between, between.caller():
            await flooded.wait()
            ((_, upstream),) = between.legs
            waits = upstream._transport.get_write_buffer_size()
            return (await between.outcome()).end, waits

    end, waits = run(scenario())
    assert (end, waits < 1024 * 1024) == (Closed(1006), True)
