"""WebSockets through the relay: handshakes, messages whole, and where they go.

Provenance: RFC 6455; attack log rows W1-W3, S12, D3, D5, O15; libraries Part B section 3.
"""

from __future__ import annotations

import pytest

from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import needs

needs("websockets")

from websockets.exceptions import InvalidStatus  # noqa: E402
from websockets.typing import Subprotocol  # noqa: E402

from gateway.relay.fleet import Fleet  # noqa: E402
from gateway.relay.upstream import UpstreamBusy, UpstreamTimes  # noqa: E402
from gateway.relay.websocket import Opening, SocketDeclined, SocketLimits  # noqa: E402
from gateway.wire.closing import Closed  # noqa: E402
from tests.gateway.relay.hostile import OK, Peer, Upstream, answers  # noqa: E402
from tests.gateway.relay.sockets import (  # noqa: E402
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
