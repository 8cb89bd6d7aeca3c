"""How a WebSocket ends through the relay: each side hears why, also of a side that is silent.

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

from gateway.relay.duplex import By  # noqa: E402
from gateway.wire.closing import NOT_ALLOWED, RESTART, Closed  # noqa: E402
from tests.gateway.relay.hostile import Peer  # noqa: E402
from tests.gateway.relay.sockets import (  # noqa: E402
    Frames,
    accepted,
    relay,
    speaks,
)


@pytest.mark.parametrize(
    ("sent", "code", "reason", "told"),
    [
        ((1000, b"bye"), 1000, "bye", Closed(1000, "bye")),
        ((1001, b""), 1001, "", Closed(1001)),
        ((3999, b"own"), 3999, "own", Closed(3999, "own")),
        ((4001, "é".encode()), 4001, "é", Closed(4001, "é")),
        ((None, b""), 1000, "", Closed(1005)),
        ((1005, b""), 1011, "", Closed(1006)),
        ((999, b""), 1011, "", Closed(1006)),
    ],
    ids=["1000", "1001", "3999", "4001", "none", "forbidden 1005", "forbidden 999"],
)
def test_upstreams_close_reaches_the_caller(
    sent: tuple[int | None, bytes], code: int, reason: str, told: Closed
) -> None:
    """Code and reason as they are; none is 1000; one that may not be sent is a fault: 1011."""

    async def talk(frames: Frames) -> None:
        await frames.close(*sent)
        await frames.hear()

    async def scenario() -> tuple[int | None, str | None, By, Closed]:
        async with relay(speaks(talk)) as between, between.caller() as caller:
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            outcome = await between.outcome()
            return caller.close_code, caller.close_reason, outcome.by, outcome.end

    assert run(scenario()) == (code, reason, By.UPSTREAM, told)


@pytest.mark.parametrize(
    ("code", "reason", "heard"),
    [
        (1000, "bye", (1000).to_bytes(2, "big") + b"bye"),
        (4002, "", (4002).to_bytes(2, "big")),
        (1001, "tab", (1001).to_bytes(2, "big") + b"tab"),
    ],
)
def test_callers_close_reaches_the_upstream(code: int, reason: str, heard: bytes) -> None:
    """Code and reason, after every message that was sent before."""
    found: list[tuple[Opcode, bytes]] = []

    async def talk(frames: Frames) -> None:
        found.extend([await frames.hear(), await frames.hear()])
        await frames.say(*found[-1])

    async def scenario() -> By:
        async with relay(speaks(talk)) as between:
            async with between.caller() as caller:
                await caller.send("last words")
                await caller.close(code, reason)
            return (await between.outcome()).by

    assert run(scenario()) is By.CALLER
    assert found == [(Opcode.TEXT, b"last words"), (Opcode.CLOSE, heard)]


def test_caller_that_vanishes_ends_the_upstream_at_once() -> None:
    """D5: no close, no FIN of a handshake: the upstream is told within the same moment."""
    heard = asyncio.Event()
    found: list[tuple[Opcode, bytes]] = []

    async def talk(frames: Frames) -> None:
        found.append(await frames.hear())
        heard.set()

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        async with relay(speaks(talk)) as between, between.caller() as caller:
            began = loop.time()
            caller.transport.abort()
            await heard.wait()
            return loop.time() - began

    assert run(scenario()) < 0.25
    assert found[0][0] is Opcode.CLOSE


def test_upstream_that_vanishes_is_a_loss_for_the_caller() -> None:
    """A reset in the middle is 1011, never a proper end."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.say(accepted(request))
        await Frames(peer).hear()
        peer.reset()

    async def scenario() -> tuple[int | None, Closed]:
        async with relay(script) as between, between.caller() as caller:
            await caller.send("x")
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            return caller.close_code, (await between.outcome()).end

    assert run(scenario()) == (1011, Closed(1006))


@pytest.mark.parametrize("code", [NOT_ALLOWED, RESTART])
def test_gateway_ends_a_socket_for_reasons_of_its_own(code: int) -> None:
    """1008 when it is not allowed any more, 1012 on drain; the upstream hears 1001 only."""
    found: list[tuple[Opcode, bytes]] = []

    async def talk(frames: Frames) -> None:
        found.append(await frames.hear())
        await frames.say(*found[-1])

    async def scenario() -> tuple[int | None, By]:
        async with relay(speaks(talk)) as between, between.caller() as caller:
            between.end.set_result(Closed(code))
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            return caller.close_code, (await between.outcome()).by

    assert run(scenario()) == (code, By.GATEWAY)
    assert found == [(Opcode.CLOSE, (1001).to_bytes(2, "big"))]


def test_policy_end_does_not_wait_for_an_upstream_that_does_not_answer() -> None:
    """O15: the caller is cut off now; the upstream has ``close_s`` to say good-bye."""

    async def deaf(_: Frames) -> None:
        await asyncio.Event().wait()

    async def scenario() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        async with relay(speaks(deaf)) as between, between.caller() as caller:
            began = loop.time()
            between.end.set_result(Closed(NOT_ALLOWED))
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            told_s = loop.time() - began
            await between.outcome()
            return told_s, loop.time() - began

    told_s, whole_s = run(scenario())
    assert told_s < 0.25
    assert 5 <= whole_s < 6


def test_upstream_that_answers_no_ping_is_given_up() -> None:
    """A connection that is dead without a word is found within two intervals."""
    heard: list[Opcode] = []

    async def talk(frames: Frames) -> None:
        while True:
            heard.append((await frames.hear())[0])

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        async with relay(speaks(talk)) as between, between.caller() as caller:
            began = loop.time()
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            return loop.time() - began

    assert 40 <= run(scenario()) < 42
    assert heard[0] is Opcode.PING


def test_upstream_that_answers_pings_is_kept_for_hours() -> None:
    """Silence of messages is no silence."""

    async def talk(frames: Frames) -> None:
        while True:
            opcode, data = await frames.hear()
            if opcode is Opcode.PING:
                await frames.say(Opcode.PONG, data)
            else:
                await frames.say(opcode, data)

    async def scenario() -> str | bytes:
        async with relay(speaks(talk)) as between, between.caller() as caller:
            await asyncio.sleep(200)
            await caller.send("still there")
            return await caller.recv()

    assert run(scenario()) == "still there"
