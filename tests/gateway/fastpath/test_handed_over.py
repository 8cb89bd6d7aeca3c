"""What the lane begins and does not end: its caller cannot tell."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from gateway.errors import GatewayError
from gateway.relay.hop import Hop
from gateway.relay.pool import Pool
from tests.gateway.fastpath.asking import PATH, Caller, forget, head, playing, warm, whole
from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.stage import OK, Stage, parse

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def pieces(*parts: bytes, then: Callable[[Peer], None] | None = None) -> Script:
    """An upstream that answers the first request of a connection well, and later ones in these
    pieces, each when the one before can have arrived."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        while await peer.request():
            for part in parts:
                await peer.say(part)
            if then is not None:
                then(peer)
                return

    return script


ENDINGS = {
    "one byte at a time": (
        pieces(*[bytes([one]) for one in OK]),
        b"ok",
    ),
    "head, then body": (pieces(OK[:-2], b"o", b"k"), b"ok"),
    "long": (
        pieces(b"HTTP/1.1 200 OK\r\ncontent-length: 400000\r\n\r\n", b"y" * 400_000),
        b"y" * 400_000,
    ),
    "chunks": (pieces(CHUNKED, b"1\r\no\r\n", b"1\r\nk\r\n", b"0\r\n\r\n"), b"ok"),
    "interim": (pieces(b"HTTP/1.1 103 Early\r\n\r\n", OK), b"ok"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_answer_in_pieces_arrives_whole(stage: Stage, name: str) -> None:
    script, body = ENDINGS[name]
    raw = head(stage)
    with playing(stage, script), Caller(stage) as caller:
        warm(stage, caller, raw)
        before = stage.lane.taken
        (reply,) = parse(caller.ask(raw))
        assert stage.lane.taken == before + 1
        assert (reply.status, reply.body) == (200, body)
        (reply,) = parse(caller.ask(raw))  # and the connection goes on
        assert (reply.status, reply.body) == (200, body)
    assert [one.status for one in stage.records.all] == [200, 200, 200]


@pytest.mark.parametrize(
    "parts",
    [(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",), (CHUNKED, b"5\r\nab")],
    ids=["length", "chunks"],
)
def test_answer_that_breaks_off_is_no_answer(stage: Stage, parts: tuple[bytes, ...]) -> None:
    raw = head(stage)
    with playing(stage, pieces(*parts, then=lambda peer: peer.reset())), Caller(stage) as caller:
        warm(stage, caller, raw)
        received = caller.ask(raw)
        assert not whole(received) or b" 502 " in received


def test_kept_connection_that_is_dead_is_replaced_once(stage: Stage) -> None:
    """The upstream closes instead of answering the second request: asked again over a new one."""
    asked: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.append(peer.number)
        await peer.say(OK)
        if peer.number == 0:
            await peer.request()
            peer.reset()
            return
        while await peer.request():
            asked.append(peer.number)
            await peer.say(OK)

    raw = head(stage)
    with playing(stage, script), Caller(stage) as caller:
        warm(stage, caller, raw)
        before = stage.lane.taken
        warm(stage, caller, raw)
        assert stage.lane.taken == before + 1
    assert asked == [0, 1]
    assert [one.code for one in stage.records.all] == ["", ""]


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 799 Odd\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nx(y: 1\r\ncontent-length: 2\r\n\r\nok",
    ],
    ids=["no answer", "status of no class", "name of no header"],
)
def test_garbage_is_refused_with_the_id_that_was_sent_on(stage: Stage, answer: bytes) -> None:
    raw = head(stage)
    with playing(stage, pieces(answer)) as portal, Caller(stage) as caller:
        warm(stage, caller, raw)
        (reply,) = parse(caller.ask(raw))
    assert (reply.status, stage.records.all[-1].code) == (502, "upstream_invalid")
    told = portal.requests[-1].split(b"x-request-id: ")[1].split(b"\r\n")[0]
    assert told.decode() == reply.header("x-request-id")


def test_answer_that_cannot_be_rendered_hangs_nobody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect costs its own request, which is answered, and no place of its upstream's pool."""
    raw = head(stage)
    with playing(stage, pieces(OK)), Caller(stage) as caller:
        warm(stage, caller, raw)
        with monkeypatch.context() as broken:
            broken.delattr("gateway.fastpath.crossing.STATUS_LINE")
            (reply,) = parse(caller.ask(raw))
        assert (reply.status, reply.body) == (200, b"ok")
        assert_all_given_back(stage)
        warm(stage, caller, raw)


def test_loan_that_nobody_takes_up_is_given_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handed over to a way that fails before it comes to it: refused, and no place is lost."""
    raw = head(stage)
    with playing(stage, pieces(CHUNKED, b"1\r\no\r\n")), Caller(stage) as caller:
        warm(stage, caller, raw)
        with monkeypatch.context() as broken:
            broken.setattr(Hop, "_headers", _unsigned)
            (reply,) = parse(caller.ask(raw))
        assert (reply.status, stage.records.all[-1].code) == (500, "internal")
        assert_all_given_back(stage)


def _unsigned(*_: object) -> None:
    raise GatewayError("a key that cannot sign")


def assert_all_given_back(stage: Stage) -> None:
    """Every place of every pool is free again."""
    pools = [one for one in stage.hop._transports.values() if isinstance(one, Pool)]
    assert pools
    assert all(one._places._free == one.limit for one in pools)


def test_next_request_that_comes_early_is_answered_next(stage: Stage) -> None:
    """Two requests while the first is with its upstream, another caller's between."""
    gate = threading.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        number = 0
        while await peer.request():
            number += 1
            if number == 1:
                await asyncio.to_thread(gate.wait, 10)
            await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % number)

    raw = head(stage)
    with playing(stage, script) as portal, Caller(stage) as caller:
        warm(stage, caller, raw)
        before = stage.lane.taken
        caller.sock.sendall(raw)
        while len(portal.requests) < 2:
            threading.Event().wait(0.01)
        caller.sock.sendall(raw)
        caller.sock.sendall(raw)
        gate.set()
        received = b""
        while len(parse(received) if received.count(b"HTTP/1.1") == 3 else []) < 3:
            received += caller.sock.recv(65536)
        assert [one.body for one in parse(received)] == [b"1", b"2", b"3"]
        assert stage.lane.taken > before


def test_caller_that_leaves_takes_its_upstream_along(stage: Stage) -> None:
    lost = threading.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.gone()
        lost.set()

    raw = head(stage)
    with playing(stage, script) as portal, Caller(stage) as caller:
        warm(stage, caller, raw)
        caller.sock.sendall(raw)
        while len(portal.requests) < 2:
            threading.Event().wait(0.01)
    assert lost.wait(1)
    last = stage.records.all[-1]
    assert (last.status, last.code, last.decision) == (499, "caller_gone", "allow")


def test_silent_upstream_is_given_up_in_time(stage: Stage) -> None:
    """The stage's two seconds to the first byte; never asked again."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.gone()

    raw = head(stage)
    with playing(stage, script) as portal, Caller(stage) as caller:
        warm(stage, caller, raw)
        (reply,) = parse(caller.ask(raw))
    assert (reply.status, stage.records.all[-1].code) == (504, "upstream_timeout")
    assert len(portal.requests) == 2


def test_events_are_passed_on_as_they_come(stage: Stage) -> None:
    """A stream that begins in the lane is one of those that are looked after."""
    gate = threading.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        await peer.say(b"data: 1\n\n")
        await asyncio.to_thread(gate.wait, 10)
        await peer.say(b"data: 2\n\n")

    raw = head(stage)
    with playing(stage, script), Caller(stage) as caller:
        warm(stage, caller, raw)
        caller.sock.sendall(raw)
        received = b""
        while b"data: 1" not in received:
            received += caller.sock.recv(65536)
        gate.set()
        while b"data: 2" not in received:
            received += caller.sock.recv(65536)


def test_slow_reader_is_left_to_the_ordinary_way(stage: Stage) -> None:
    """While an answer waits to be read nothing more is taken, and nothing is lost."""
    stage.upstream.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 250000\r\n\r\n" + b"z" * 250_000
    forget(stage)
    raw = head(stage)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        for _ in range(30):
            caller.sock.sendall(raw)
        received = b""
        while received.count(b"z") < 30 * 250_000:
            piece = caller.sock.recv(1 << 20)
            assert piece
            received += piece
        assert received.count(b"HTTP/1.1 200 OK") == 30


def test_target_of_other_letters_is_another(stage: Stage) -> None:
    forget(stage)
    raw = head(stage)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        caller.ask(raw.replace(PATH.encode(), PATH.upper().encode()))
    assert stage.upstream.requests[-1].split()[1] == PATH.encode()
