"""The end of the process, while requests are with the lane and between them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from gateway.ingress.limits import Limits
from gateway.ingress.shortcut import Way
from gateway.relay.address import Address
from gateway.relay.hop import Target
from gateway.relay.pool import Pool
from gateway.relay.upstream import UpstreamTimes
from policies.snapshot import Snapshot
from tests.gateway.fastpath.asking import Caller, Portal, forget, head, playing, warm
from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.stage import OK, Stage, parse
from tests.gateway.tokens import Issuers

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


@pytest.fixture
def ending(believing: Snapshot, issuers: Issuers) -> Iterator[Stage]:
    """A gateway of the test's own: it ends it."""
    limits = Limits(header_s=1, body_s=1, body_idle_s=0.5, keep_alive_s=5, request_s=5)
    with Stage(believing, issuers, limits) as stage:
        yield stage


def behind(stage: Stage, script: Script) -> Portal:
    """The portal of a gateway that the test ends."""
    portal = Portal(script)
    stage.upstream = portal  # type: ignore[assignment]  # serves, and that is all
    return portal


def answering_at(gate: threading.Event, *pieces: bytes, well: int = 1) -> Script:
    """An upstream that answers the first requests of a connection at once and the next in these
    pieces, all but the first of them once the gate is open."""

    async def script(peer: Peer) -> None:
        for _ in range(well):
            await peer.request()
            await peer.say(OK)
        await peer.request()
        for number, piece in enumerate(pieces):
            if number == 1:
                await asyncio.to_thread(gate.wait, 10)
            if piece:
                await peer.say(piece)

    return script


@pytest.mark.parametrize(
    "pieces",
    [(b"", OK), (OK[:-1], OK[-1:])],
    ids=["nothing yet", "half a body"],
)
def test_request_under_way_is_answered_whole_before_the_end(
    ending: Stage, pieces: tuple[bytes, ...]
) -> None:
    """A caller that the lane has taken gets all of its answer, a connection between two requests
    ends without a word, and both are recorded once."""
    gate, raw = threading.Event(), head(ending)
    script = answering_at(gate, *pieces, well=2)
    portal = behind(ending, script)
    with Caller(ending) as caller:
        warm(ending, caller, raw)
        with Caller(ending) as idle:
            warm(ending, idle, raw)
            taken = ending.lane.taken
            caller.sock.sendall(raw)
            while len(portal.requests) < 3:
                threading.Event().wait(0.01)
            assert ending.lane.taken == taken + 1
            ending.loop.call_soon_threadsafe(ending._stop.set)
            assert idle.answer() == b""  # closed while the other is under way
            gate.set()
            (reply,) = parse(caller.answer())
            assert (reply.status, reply.body, reply.header("connection")) == (200, b"ok", "close")
            assert caller.answer() == b""
            with pytest.raises(ConnectionRefusedError):
                Caller(ending).__enter__()
    assert [(one.status, one.code) for one in ending.records.all] == [(200, "")] * 3


def test_connection_is_told_of_its_end_between_question_and_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first byte of the answer is still to come: it says that it is the last, and is."""
    raw, ways = head(stage), list[Way]()
    take = stage.lane.take

    def noted(way: Way, data: bytes) -> bool:
        ways.append(way)
        return take(way, data)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        assert ways[-1].passing is not None
        ways[-1]._protocol.shutdown()
        await peer.say(OK)

    monkeypatch.setattr(stage.lane, "take", noted)
    with playing(stage, script), Caller(stage) as caller:
        warm(stage, caller, raw)
        (reply,) = parse(caller.ask(raw))
        assert (reply.status, reply.body, reply.header("connection")) == (200, b"ok", "close")
        assert caller.answer() == b""
    assert [one.status for one in stage.records.all] == [200, 200]


@pytest.mark.parametrize("known", [False, True])
def test_what_is_not_answered_in_time_is_refused_in_our_words(ending: Stage, known: bool) -> None:
    """By an upstream that takes longer than the process waits: one refusal and one record, whether
    the lane took the request or not; nothing of the server's own reaches the caller."""
    patient(ending)
    gate, raw = threading.Event(), head(ending)
    portal = behind(ending, answering_at(gate, b"", b""))
    with Caller(ending) as caller:
        warm(ending, caller, raw)
        taken = ending.lane.taken
        if not known:
            forget(ending)
        caller.sock.sendall(raw)
        while len(portal.requests) < 2:
            threading.Event().wait(0.01)
        assert ending.lane.taken - taken == known
        ending.loop.call_soon_threadsafe(ending._stop.set)
        (reply,) = parse(caller.answer())
        gate.set()
        assert (reply.status, json.loads(reply.body)["code"]) == (503, "overloaded")
        assert reply.header("cache-control") == "private, no-store"
        assert reply.header("connection") == "close"
    assert [(one.status, one.code) for one in ending.records.all] == [
        (200, ""),
        (503, "overloaded"),
    ]


def patient(stage: Stage) -> None:
    """Let the gateway wait a minute for the customer portal."""
    was = stage.hop._targets
    authority = was["customer-portal"].authority
    address = Address(host="127.0.0.1", port=int(authority.rpartition(b":")[2]))
    times = UpstreamTimes(first_byte_s=60)
    there = Target(authority, lambda: Pool(address=address, times=times))

    async def move() -> None:
        stage.hop.retarget({**was, "customer-portal": there}, {"customer-portal"})

    stage.call(move())


def test_events_that_began_in_the_lane_end_whole(ending: Stage) -> None:
    """After the last whole event, and with the end that their framing has."""
    gate, raw = threading.Event(), head(ending)
    behind(ending, answering_at(gate, EVENTS + b"data: 1\n\ndata: ", b"2\n\n"))
    with Caller(ending) as caller:
        warm(ending, caller, raw)
        before = ending.lane.taken
        caller.sock.sendall(raw)
        received = b""
        while b"data: 1" not in received:
            received += caller.sock.recv(65536)
        assert ending.lane.taken == before + 1
        ending.loop.call_soon_threadsafe(ending._stop.set)
        while piece := caller.sock.recv(65536):
            received += piece
        gate.set()
        (reply,) = parse(received)
        assert reply.body == b"data: 1\n\n"
        assert received.endswith(b"\r\n0\r\n\r\n")
    assert [one.code for one in ending.records.all] == ["", "stream_drain"]
