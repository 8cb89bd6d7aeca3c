"""WebSockets through the relay: messages whole, ends passed on, nobody overrun.

Provenance: RFC 6455; attack log rows W1-W3, S12, D3, D5, O15; libraries Part B section 3.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import needs

needs("websockets")

from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402
from websockets.frames import Opcode  # noqa: E402
from websockets.typing import Subprotocol  # noqa: E402

from gateway.relay.duplex import By  # noqa: E402
from gateway.relay.fleet import Fleet  # noqa: E402
from gateway.relay.upstream import UpstreamBusy, UpstreamTimes  # noqa: E402
from gateway.relay.websocket import Opening, SocketDeclined, SocketLimits  # noqa: E402
from gateway.wire.closing import NOT_ALLOWED, RESTART, Closed  # noqa: E402
from tests.gateway.relay.hostile import OK, Peer, Upstream, answers  # noqa: E402
from tests.gateway.relay.sockets import (  # noqa: E402
    Frames,
    accepted,
    echoes,
    relay,
    speaks,
)


def test_text_and_bytes_go_both_ways_unchanged() -> None:
    """Empty, long and non-ASCII ones too; what went over it is counted in payload bytes."""
    messages: list[str | bytes] = [
        "",
        "ok",
        "Grüße 你好",
        b"",
        b"\x00\xff",
        "x" * 90_000,
        b"y" * 90_000,
    ]

    async def scenario() -> tuple[list[str | bytes], int, int]:
        async with relay(speaks(echoes)) as between:
            async with between.caller() as caller:
                came = []
                for message in messages:
                    await caller.send(message)
                    came.append(await caller.recv())
            await between.outcome()
            ((to_caller, to_upstream),) = between.legs
            return came, to_upstream.sent_bytes, to_caller.sent_bytes

    size = sum(len(one.encode() if isinstance(one, str) else one) for one in messages)
    assert run(scenario()) == (messages, size, size)


def test_handshake_is_ours_and_carries_only_what_was_given() -> None:
    """No extension, no agent, no origin of the client's; target and Host as decided."""

    async def scenario() -> bytes:
        async with relay(speaks(echoes)) as between:
            async with between.caller():
                pass
            return between.upstream.requests[0]

    lines = run(scenario()).split(b"\r\n")
    assert lines[0] == b"GET /a?b=1 HTTP/1.1"
    names = sorted(line.partition(b":")[0].lower() for line in lines[1:] if line)
    assert names == [
        b"connection",
        b"host",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"upgrade",
        b"x-gateway-subject",
    ]


def test_subprotocol_is_the_upstreams_choice_among_the_callers_offers() -> None:
    """It is asked first and the caller is told what it chose."""

    async def scenario() -> tuple[str | None, bytes]:
        async with relay(speaks(echoes, b"Sec-WebSocket-Protocol: b")) as between:
            async with between.caller(subprotocols=[Subprotocol("a"), Subprotocol("b")]) as caller:
                chosen = caller.subprotocol
            return chosen, between.upstream.requests[0]

    chosen, request = run(scenario())
    assert chosen == "b"
    assert b"Sec-WebSocket-Protocol: a, b\r\n" in request


@pytest.mark.parametrize(
    ("answer", "error", "status"),
    [
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", "SocketDeclined", 403),
        (
            b"HTTP/1.1 302 Found\r\nlocation: ws://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            "SocketDeclined",
            302,
        ),
        (OK, "SocketDeclined", 200),
        (b"nonsense\r\n\r\n", "UpstreamInvalid", 0),
        (b"", "UpstreamUnavailable", 0),
        (
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            "UpstreamInvalid",
            0,
        ),
        (
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
            "UpstreamInvalid",
            0,
        ),
        (b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "UpstreamInvalid", 0),
        (b"HTTP/1.1 101 S\r\n" + b"x: 1\r\n" * 500 + b"\r\n", "UpstreamInvalid", 0),
        (b"HTTP/1.1 101 S\r\nUpgrade: webs", "UpstreamInvalid", 0),
    ],
    ids=[
        "403",
        "redirect",
        "200",
        "nonsense",
        "close",
        "no proof",
        "wrong proof",
        "h2c",
        "flood",
        "half",
    ],
)
def test_caller_is_not_accepted_unless_the_upstream_is(
    answer: bytes, error: str, status: int
) -> None:
    """W1: the upstream is dialled first; without it the caller gets no 101."""

    async def scenario() -> tuple[str, int]:
        async with relay(answers(answer, end=True)) as between:
            with pytest.raises(InvalidStatus):
                async with between.caller():
                    pass
            (refused,) = between.refused
            return type(refused).__name__, refused.status if isinstance(
                refused, SocketDeclined
            ) else 0

    assert run(scenario()) == (error, status)


def test_answer_without_end_is_cut_before_its_time() -> None:
    """What is held of one is bounded."""

    async def endless(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 101 S\r\nx: " + b"y" * 200_000)
        await peer.gone()

    async def scenario() -> str:
        async with relay(endless) as between:
            with pytest.raises(InvalidStatus):
                async with between.caller():
                    pass
            return type(between.refused[0]).__name__

    assert run(scenario()) == "UpstreamInvalid"


def test_older_version_opens_no_socket() -> None:
    """RFC 6455 section 4.2.2: a status line of HTTP/1.1, whatever else is right."""

    async def script(peer: Peer) -> None:
        await peer.say(accepted(await peer.request()).replace(b"HTTP/1.1", b"HTTP/1.0"))
        await peer.gone()

    async def scenario() -> str:
        async with relay(script) as between:
            with pytest.raises(InvalidStatus):
                async with between.caller():
                    pass
            return type(between.refused[0]).__name__

    assert run(scenario()) == "UpstreamInvalid"


def test_extension_or_subprotocol_that_was_not_offered_is_no_handshake() -> None:
    """An upstream cannot make us read compressed frames, nor speak what nobody asked for."""

    async def scenario(extra: bytes) -> str:
        async with relay(speaks(echoes, extra)) as between:
            with pytest.raises(InvalidStatus):
                async with between.caller():
                    pass
            return type(between.refused[0]).__name__

    for extra in (b"Sec-WebSocket-Extensions: permessage-deflate", b"Sec-WebSocket-Protocol: x"):
        assert run(scenario(extra)) == "UpstreamInvalid"


def test_silent_handshake_ends_in_its_time() -> None:
    """``first_byte_s`` is for a socket, too."""

    async def mute(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async def scenario() -> str:
        async with relay(mute, times=UpstreamTimes(first_byte_s=7)) as between:
            with pytest.raises(InvalidStatus):
                async with between.caller():
                    pass
            return type(between.refused[0]).__name__

    assert run(scenario()) == "UpstreamTimeout"


def test_frames_in_the_same_segment_as_the_handshake_are_not_lost() -> None:
    """An upstream may speak first and at once."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.say(accepted(request) + b"\x81\x02hi")
        await peer.gone()

    async def scenario() -> str | bytes:
        async with relay(script) as between, between.caller() as caller:
            return await caller.recv()

    assert run(scenario()) == "hi"


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


def test_socket_goes_to_the_backend_that_listens_and_counts_until_it_ends() -> None:
    """Balanced like a request; a dead backend opens its breaker for both kinds."""
    opening = Opening(target=b"/", headers=((b"host", b"u"),))

    async def scenario() -> list[object]:
        async with Upstream(speaks(echoes)) as dead, Upstream(speaks(echoes)) as alive:
            assert dead._server is not None
            dead._server.close()
            await dead._server.wait_closed()
            fleet = Fleet(addresses=[dead.address, alive.address], failures_max=1, sockets_max=1)
            socket = await fleet.socket(opening, SocketLimits())
            found: list[object] = [fleet.backends[0].breaker.state, fleet.backends[1].under_way]
            with pytest.raises(UpstreamBusy):
                await fleet.socket(opening, SocketLimits())
            socket.leg.tell(Closed(1000))
            await socket.leg.gone()
            return [*found, fleet.backends[1].under_way]

    assert run(scenario()) == ["open", 1, 0]


def test_declined_socket_counts_as_an_answer() -> None:
    """A caller that asks where no socket is must not close an upstream to everybody."""
    opening = Opening(target=b"/", headers=((b"host", b"u"),))

    async def scenario() -> tuple[str, int]:
        async with Upstream(answers(OK, end=True)) as upstream:
            fleet = Fleet(addresses=[upstream.address], failures_max=1)
            with pytest.raises(SocketDeclined):
                await fleet.socket(opening, SocketLimits())
            return fleet.backends[0].breaker.state, fleet.backends[0].under_way

    assert run(scenario()) == ("closed", 0)
