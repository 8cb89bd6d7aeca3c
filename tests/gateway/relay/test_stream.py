"""An answer's way to the caller: event by event, cut when either side is gone.

Provenance: attack log rows S17, D3, D5, F15; issue 4 (a disconnect reaches the upstream within
250 ms, an upstream cut short aborts downstream).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.errors import Headers
from gateway.ingress.body import Body
from gateway.ingress.limits import Limits
from gateway.relay.stream import Truncated, relay_body
from gateway.relay.upstream import CallerGone, UpstreamTransport
from gateway.relay.watch import CallerWatch
from tests.gateway.relay.asking import between, question
from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import Transport
from tests.gateway.relay.hostile import OK, Peer, answers

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SOON_S = 0.25
"""How long after a caller has left its upstream may still be busy for it."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Caller:
    """A caller as ASGI shows it: what it sends, what it was sent, and when it leaves."""

    def __init__(self, *pieces: bytes) -> None:
        self.came: list[tuple[bytes, bool]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.left = asyncio.Event()
        self.heard = asyncio.Event()
        self._messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": piece, "more_body": place < len(pieces) - 1}
            for place, piece in enumerate(pieces)
        ]

    async def receive(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.reads.wait()
        self.came.append((message["body"], message["more_body"]))
        self.heard.set()

    @property
    def body(self) -> bytes:
        return b"".join(piece for piece, _ in self.came)


async def relayed(client: UpstreamTransport, caller: Caller) -> int:
    with CallerWatch(caller.receive):
        response = await client.request(question())
    return await relay_body(response, caller.receive, caller.send)


def test_each_event_reaches_the_caller_before_the_next_is_made(transport: Transport) -> None:
    """F15: no buffer between an upstream's flush and the caller, whatever the event's size."""
    caller = Caller()
    events = [b"data: %d\n\n" % n for n in range(5)] + [b": ping\n\n", b"data: " + b"x" * 9_000]

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(STREAM)
        said = b""
        for event in events:
            said += event
            await peer.say(chunk(event))
            while caller.body != said:
                caller.heard.clear()
                await caller.heard.wait()
        await peer.say(b"0\r\n\r\n")

    async def scenario() -> int:
        async with between(transport, script) as (client, _):
            return await relayed(client, caller)

    assert run(scenario()) == sum(map(len, events))
    assert caller.came[-1][1] is False


def test_short_answer_is_one_message_that_ends_it(transport: Transport) -> None:
    """A body that is whole when it is read needs no second message."""
    caller = Caller()

    async def scenario() -> int:
        async with between(transport, answers(OK)) as (client, _):
            return await relayed(client, caller)

    assert run(scenario()) == 2
    assert caller.came == [(b"ok", False)]


@pytest.mark.parametrize("when", ["before the answer", "inside the body"])
def test_leaving_caller_is_noticed_soon_and_its_upstream_is_cut(
    transport: Transport, when: str
) -> None:
    """D5: on the clock of the loop, from the caller's end to the upstream's."""
    caller = Caller()
    cut_at: list[float] = []
    cut = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if when == "inside the body":
            await peer.say(STREAM + chunk(b"data: 1\n\n"))
        await peer.gone()
        cut_at.append(asyncio.get_running_loop().time())
        cut.set()

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        async with between(transport, script) as (client, _):
            relaying = asyncio.create_task(relayed(client, caller))
            await asyncio.sleep(10)
            left_at = loop.time()
            caller.left.set()
            with pytest.raises(CallerGone):
                await relaying
            await cut.wait()
            return left_at

    left_at = run(scenario())
    assert cut_at[0] - left_at < SOON_S


@pytest.mark.parametrize(
    "rest",
    [b"", b"5\r\nab", b"ZZ\r\n"],
    ids=["no end", "half a chunk", "no chunk"],
)
def test_answer_cut_short_is_never_ended(transport: Transport, rest: bytes) -> None:
    """S17: the last message says that more was to come, so the server cuts the connection."""
    caller = Caller()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(STREAM + chunk(b"abc"))
        await asyncio.sleep(1)
        await peer.say(rest)

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        async with between(transport, script) as (client, _):
            began = loop.time()
            with pytest.raises(Truncated):
                await relayed(client, caller)
            return loop.time() - began

    assert run(scenario()) < 2
    assert all(more for _, more in caller.came)
    assert b"abcab".startswith(caller.body)


def test_caller_that_does_not_read_is_given_up_and_its_upstream_cut(transport: Transport) -> None:
    """D3: a write deadline; the upstream is not held by somebody who is not there."""
    caller = Caller()
    caller.reads.clear()
    cut = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(STREAM + chunk(b"abc"))
        await peer.gone()
        cut.set()

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        async with between(transport, script) as (client, _):
            began = loop.time()
            with pytest.raises(Truncated):
                await relayed(client, caller)
            await cut.wait()
            return loop.time() - began

    assert 30 <= run(scenario()) < 31


def test_body_that_is_still_read_by_an_upstream_is_left_to_it(transport: Transport) -> None:
    """An answer that began early: the watch for a leaving caller takes no piece of the body."""
    caller = Caller(*(b"%03d" % number for number in range(100)))
    headers: Headers = ((b"transfer-encoding", b"chunked"),)

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.say(STREAM)
        read = b""
        while not read.endswith(b"0\r\n\r\n"):
            read += await peer.read(1000)
            await peer.say(chunk(b"."))
            await asyncio.sleep(0.2)
        await peer.say(chunk(b"%d" % read.count(b"\r\n3\r\n")), b"0\r\n\r\n")

    async def slow(body: Body) -> AsyncIterator[bytes]:
        async for piece in body.pieces():
            await asyncio.sleep(0.05)
            yield piece

    async def scenario() -> bytes:
        body = Body(caller.receive, headers, Limits())
        async with between(transport, script) as (client, _):
            response = await client.request(question("POST", body=slow(body)))
            await relay_body(response, caller.receive, caller.send, body)
            return caller.body

    assert run(scenario()).endswith(b"99")
