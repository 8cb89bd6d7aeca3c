"""Bodies on their way: both directions, slow on either side, cut on either side.

Provenance: attack log rows D2, D3, D5, S16, S17; libraries Part B goal 5 (a slow reader adds
less than 16 MB).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.errors import GatewayError
from gateway.relay.pool import Pool
from gateway.relay.upstream import CallerGone, UpstreamError, UpstreamTimes
from tests.gateway.relay.asking import between, question, told
from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import Transport
from tests.gateway.relay.hostile import OK, Peer

MIB = 1024 * 1024
HELD_MAX = 16 * MIB
"""What may be under way between an upstream and a reader, kernel buffers included."""
ENDLESS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"


def test_upstream_waits_for_a_reader_that_does_not_read(transport: Transport) -> None:
    """D3: what is not taken stays with the upstream; taking it lets the rest come."""
    sent = 0
    silent = asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.say(ENDLESS)
        for _ in range(1024):
            try:
                async with asyncio.timeout(1):
                    await peer.say(CHUNK)
            except TimeoutError:
                silent.set()
                await peer.say(b"")
            sent += 65536
        await peer.say(b"0\r\n\r\n")

    async def scenario() -> tuple[int, int]:
        async with between(transport, script) as (client, _):
            response = await client.request(question())
            await silent.wait()
            held = sent
            taken = 0
            async for piece in response:
                taken += len(piece)
            await response.aclose()
            return held, taken

    held, taken = run(scenario())
    assert held < HELD_MAX
    assert taken == 64 * MIB


def test_caller_waits_for_an_upstream_that_does_not_read(transport: Transport) -> None:
    """The body's iterator is asked for the next piece only when there is room for it."""
    asked = 0
    go_on = asyncio.Event()
    silent = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await go_on.wait()
        left = 64 * MIB
        while left:
            left -= len(await peer.read(MIB))
        await peer.say(OK)

    async def body() -> AsyncIterator[bytes]:
        nonlocal asked
        for _ in range(1024):
            yield b"x" * 65536
            asked += 65536

    async def watch() -> None:
        before = -1
        while before != asked:
            before = asked
            await asyncio.sleep(1)
        silent.set()

    async def scenario() -> tuple[int, bytes]:
        async with between(transport, script) as (client, _):
            asking = asyncio.create_task(
                told(client, question("PUT", body=body(), body_bytes=64 * MIB))
            )
            watching = asyncio.create_task(watch())
            await silent.wait()
            held = asked
            go_on.set()
            answer = await asking
            await watching
            return held, answer.body

    held, answer = run(scenario())
    assert held < HELD_MAX
    assert answer == b"ok"


def test_answer_reaches_the_reader_piece_by_piece(transport: Transport) -> None:
    """Nothing waits for a buffer to fill: each event is there before the next is sent."""
    taken = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for number in range(20):
            await peer.say(b"data: %d\n\n" % number)
            await taken.wait()
            taken.clear()

    async def scenario() -> list[bytes]:
        async with between(transport, script) as (client, _):
            response = await client.request(question())
            came = []
            async for piece in response:
                came.append(piece)
                taken.set()
            await response.aclose()
            return came

    assert run(scenario()) == [b"data: %d\n\n" % number for number in range(20)]


def test_answer_may_stream_while_the_question_is_still_sent(transport: Transport) -> None:
    """Both directions at once: an upstream that echoes answers the first piece first."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n")
        for _ in range(10):
            await peer.say(await peer.read(3))
        await peer.gone()

    echoed = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        for number in range(10):
            yield b"%03d" % number
            await echoed.wait()
            echoed.clear()

    async def scenario() -> bytes:
        async with between(transport, script) as (client, _):
            response = await client.request(question("POST", body=body(), body_bytes=30))
            came = b""
            async for piece in response:
                came += piece
                echoed.set()
            await response.aclose()
            return came

    assert run(scenario()) == b"".join(b"%03d" % number for number in range(10))


def test_early_refusal_arrives_while_the_body_is_unsent(transport: Transport) -> None:
    """A 413 in the middle of an upload: the caller learns it, the body is not read on, and the
    upstream sees the connection end."""
    asked = 0
    never, cut = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.read(1000)
        await peer.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.gone()
        cut.set()

    async def body() -> AsyncIterator[bytes]:
        nonlocal asked
        asked += 1
        yield b"x" * 1000
        asked += 1
        await never.wait()

    async def scenario() -> tuple[int, bytes]:
        async with between(transport, script) as (client, _):
            answer = await told(client, question("POST", body=body()))
            async with asyncio.timeout(1):
                await cut.wait()
            return answer.status, answer.body

    assert run(scenario()) == (413, b"no")
    assert asked == 2


@pytest.mark.parametrize("sized", [True, False], ids=["length", "chunks"])
def test_caller_that_leaves_inside_its_body_never_makes_a_whole_request(
    transport: Transport, sized: bool
) -> None:
    """S16: the upstream sees the connection end, not the end of a body."""
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())

    async def body() -> AsyncIterator[bytes]:
        yield b"abc"
        raise CallerGone("left")

    async def scenario() -> None:
        async with between(transport, script) as (client, _):
            with pytest.raises(CallerGone):
                await client.request(question("POST", body=body(), body_bytes=6 if sized else None))

    run(scenario())
    assert seen == []


def test_caller_that_leaves_inside_its_body_cuts_an_answer_that_began(
    transport: Transport,
) -> None:
    """Half a question has no whole answer."""
    began = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.say(ENDLESS + b"2\r\nok\r\n")
        await peer.gone()

    async def body() -> AsyncIterator[bytes]:
        yield b"abc"
        await began.wait()
        raise CallerGone("left")

    async def scenario() -> bytes:
        async with between(transport, script) as (client, _):
            response = await client.request(question("POST", body=body()))
            pieces = aiter(response)
            came = await anext(pieces)
            began.set()
            with pytest.raises(GatewayError):
                await anext(pieces)
            await response.aclose()
            return came

    assert run(scenario()) == b"ok"


@pytest.mark.parametrize("when", ["before the answer", "inside the body"])
def test_asker_that_is_cancelled_cuts_its_upstream(transport: Transport, when: str) -> None:
    """D5: no request goes on for nobody, and no connection of it is kept."""
    cut = asyncio.Event()
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if when == "inside the body":
            await peer.say(ENDLESS + b"2\r\nok\r\n")
        asked.set()
        await peer.gone()
        cut.set()

    async def scenario() -> None:
        async with between(transport, script) as (client, _):
            asking = asyncio.create_task(told(client, question()))
            await asked.wait()
            await asyncio.sleep(1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await cut.wait()

    run(scenario())


TIMES = UpstreamTimes(connect_s=3, first_byte_s=30, idle_s=60, write_s=20, total_s=600)


async def _nothing(peer: Peer) -> None:
    await peer.request()
    await peer.gone()


async def _slow_header(peer: Peer) -> None:
    await peer.request()
    for byte in range(len(OK)):
        await peer.say(OK[byte : byte + 1])
        await asyncio.sleep(5)


async def _silence(peer: Peer) -> None:
    await peer.request()
    await peer.say(ENDLESS + b"2\r\nok\r\n")
    await peer.gone()


async def _drip(peer: Peer) -> None:
    await peer.request()
    await peer.say(ENDLESS)
    while True:
        await asyncio.sleep(50)
        await peer.say(b"1\r\nx\r\n")


async def _endless_trailers(peer: Peer) -> None:
    await peer.request()
    await peer.say(ENDLESS + b"2\r\nok\r\n0\r\n")
    while True:
        await asyncio.sleep(50)
        await peer.say(b"x: y\r\n")


@pytest.mark.parametrize(
    ("script", "after_s"),
    [
        pytest.param(_nothing, 30, id="first byte"),
        pytest.param(_slow_header, 30, id="slow header"),
        pytest.param(_silence, 60, id="silence in a body"),
        pytest.param(_drip, 600, id="drip"),
    ],
)
def test_upstream_has_its_time_and_not_more(
    transport: Transport,
    script: object,
    after_s: float,
) -> None:
    """Header block, silence and the whole have a bound each; the clock of the loop tells."""

    async def scenario() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        async with between(transport, script, times=TIMES) as (client, _):  # type: ignore[arg-type]
            began = loop.time()
            answer = await told(client, question())
            return answer.error, loop.time() - began

    error, took_s = run(scenario())
    assert error == "UpstreamTimeout"
    assert after_s <= took_s < after_s + 10


def test_interim_answers_without_end_are_given_up(transport: Transport) -> None:
    """Ours after the eighth; aiohttp when the time for an answer is over (named exemption)."""

    async def script(peer: Peer) -> None:
        await peer.request()
        while True:
            await peer.say(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
            await asyncio.sleep(1)

    async def scenario() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        async with between(transport, script, times=TIMES) as (client, _):
            began = loop.time()
            return (await told(client, question())).error, loop.time() - began

    error, took_s = run(scenario())
    if transport is Pool:
        assert (error, took_s < 9) == ("UpstreamInvalid", True)
    else:
        assert (error, took_s < 31) == ("UpstreamTimeout", True)


def test_trailers_without_end_end_with_the_time_of_a_body(transport: Transport) -> None:
    """They are no body: nobody is given a piece, so the silence counts."""

    async def scenario() -> str:
        async with between(transport, _endless_trailers, times=TIMES) as (client, _):
            return (await told(client, question())).error

    assert run(scenario()) == "UpstreamTimeout"


def test_upstream_that_stops_reading_is_given_up(transport: Transport) -> None:
    """A body that cannot be sent ends the exchange after ``write_s``."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await asyncio.Event().wait()

    async def body() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async def scenario() -> str:
        async with between(transport, script, times=TIMES) as (client, _):
            return (await told(client, question("POST", body=body()))).error

    assert run(scenario()) == "UpstreamTimeout"


def test_slow_upload_does_not_use_up_the_time_for_an_answer(transport: Transport) -> None:
    """A caller may take its time over a body; the upstream's own time begins afterwards."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)

    async def body() -> AsyncIterator[bytes]:
        for _ in range(10):
            await asyncio.sleep(25)
            yield b"x"

    async def scenario() -> bytes:
        async with between(transport, script, times=TIMES) as (client, _):
            return (await told(client, question("POST", body=body()))).body

    assert run(scenario()) == b"ok"


def test_nobody_listening_is_unavailable_and_may_be_asked_elsewhere(transport: Transport) -> None:
    """Nothing was sent, whatever the method."""

    async def scenario() -> list[object]:
        async with between(transport, _nothing) as (client, upstream):
            assert upstream._server is not None
            upstream._server.close()
            await upstream._server.wait_closed()
            found: list[object] = []
            for method in ("GET", "POST"):
                with pytest.raises(UpstreamError) as caught:
                    await client.request(question(method))
                found += [type(caught.value).__name__, getattr(caught.value, "again", None)]
            return found

    assert run(scenario()) == ["UpstreamUnavailable", True] * 2
