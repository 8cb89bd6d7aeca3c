"""Answers that are still coming: events one by one, and how they and other bodies end early.

Provenance: attack log rows D5, F15 and section 4 ("Streaming", "Drain"); architecture G5.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingress.limits import Limits
from gateway.streams.answers import last_end
from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.stage import Stage
from tests.gateway.streams.staging import Portal, Scene, policy

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = HEAD.replace(b"text/event-stream", b"application/octet-stream")
END = b"0\r\n\r\n"
EVENT = re.compile(rb"(?:(?:[^\r\n]+)(?:\r\n|\r|\n))*(?:\r\n|\r|\n)")


class Upstream:
    """Says what a test tells it to, when it tells it to."""

    def __init__(self, head: bytes = HEAD) -> None:
        self._head = head
        self._next: list[bytes] = []
        self.lost = threading.Event()

    def say(self, piece: bytes) -> None:
        """A chunk, soon; an empty one is the end."""
        self._next.append(b"%x\r\n%b\r\n" % (len(piece), piece) if piece else END)

    async def script(self, peer: Peer) -> None:
        await peer.request()
        await peer.say(self._head)
        gone = asyncio.create_task(peer.gone())
        while not gone.done():
            while self._next:
                piece = self._next.pop(0)
                await peer.say(piece)
                if piece == END:
                    gone.cancel()
                    return  # a kept connection would be asked by the next test
            await asyncio.wait({gone}, timeout=0.005)
        self.lost.set()


class Caller:
    """A raw HTTP caller that reads as much as it wants to."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = b""

    def until(self, mark: bytes) -> bytes:
        while mark not in self.received:
            piece = self.connection.recv(65536)
            assert piece, f"closed before {mark!r}: {self.received!r}"
            self.received += piece
        return self.received

    def rest(self) -> bytes:
        """Everything to the end of the connection; ``<reset>`` when it is cut."""
        try:
            while piece := self.connection.recv(65536):
                self.received += piece
        except ConnectionResetError:
            self.received += b"<reset>"
        return self.received


@contextmanager
def asking(stage: Stage, token: str, path: str = "/portal/customer/events") -> Iterator[Caller]:
    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: Bearer {token}\r\n\r\n"
            .encode()
        )  # fmt: skip
        yield Caller(connection)


@contextmanager
def watching(scene: Scene, upstream: Upstream) -> Iterator[Caller]:
    play(scene, upstream.script)
    with asking(scene.stage, scene.issuers.token("customer")) as caller:
        yield caller


def play(scene: Scene, script: Script) -> Portal:
    return scene.play(script)


def test_each_event_is_passed_on_by_itself(scene: Scene) -> None:
    """No buffering: the first is read before the second is said."""
    upstream = Upstream()
    with watching(scene, upstream) as caller:
        for number in range(5):
            upstream.say(b"data: %d\n\n" % number)
            caller.until(b"data: %d\n\n" % number)
        upstream.say(b"")
        caller.until(END)
    record = scene.last()
    assert (record.code, record.bytes_out) == ("", 5 * len(b"data: 0\n\n"))


def test_half_an_event_waits_for_its_other_half(scene: Scene) -> None:
    """F15: an event in pieces is one, whatever its line ends."""
    upstream = Upstream()
    with watching(scene, upstream) as caller:
        upstream.say(b"data: a\r\n\r\ndata: b")
        caller.until(b"data: a\r\n\r\n")
        upstream.say(b"\r")
        upstream.say(b"\n\r\nid: 3\r\r")
        caller.until(b"id: 3\r\r")
        assert caller.received.count(b"data: b\r\n\r\n") == 1
        upstream.say(b"data: left unfinished")
        upstream.say(b"")
        caller.until(END)
        assert b"left unfinished" in caller.received


@pytest.mark.parametrize("change", ["no customer portal", "other upstream"])
def test_events_end_after_the_last_whole_one_when_the_policy_narrows(
    scene: Scene, change: str
) -> None:
    """G5: a proper end for the caller, who may come again; the upstream is cut."""
    upstream = Upstream()
    with watching(scene, upstream) as caller:
        upstream.say(b"data: 1\n\ndata: half")
        caller.until(b"data: 1\n\n")
        scene.enforce(scene.others[change])
        caller.until(END)
        assert b"half" not in caller.received
        assert upstream.lost.wait(2)
    assert scene.last().code == "stream_narrowed"


def test_body_is_cut_when_the_policy_narrows(scene: Scene) -> None:
    """G5: what is not whole must not look whole."""
    upstream = Upstream(BODY)
    with watching(scene, upstream) as caller:
        upstream.say(b"first part")
        caller.until(b"first part")
        scene.enforce(scene.others["no customer portal"])
        assert not caller.rest().endswith(END)
        assert upstream.lost.wait(2)
    assert scene.last().code == "stream_narrowed"


@pytest.mark.parametrize("head", [HEAD, BODY], ids=["events", "body"])
def test_caller_that_does_not_read_is_cut_when_the_policy_narrows(
    scene: Scene, head: bytes
) -> None:
    """G5: within two seconds too; what waits for it is not let out to it later, bit by bit."""
    held_up = threading.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(head)
        event = b"data: " + b"x" * 4_000 + b"\n\n"
        while True:
            try:
                async with asyncio.timeout(1):
                    await peer.say(b"%x\r\n%b\r\n" % (len(event), event))
            except TimeoutError:
                held_up.set()

    play(scene, script)
    with asking(scene.stage, scene.issuers.token("customer")):
        assert held_up.wait(10)
        scene.enforce(scene.others["no customer portal"])
        assert scene.stage.records.some.wait(5)
    assert scene.last().code == "stream_narrowed"


@pytest.mark.parametrize("head", [HEAD, BODY], ids=["events", "body"])
@pytest.mark.parametrize("change", ["unrelated", "partners only", "other origin"])
def test_what_would_still_be_allowed_goes_on(scene: Scene, change: str, head: bytes) -> None:
    """G5: an answer is not about sockets, and others' rules are not about this caller."""
    upstream = Upstream(head)
    with watching(scene, upstream) as caller:
        upstream.say(b"data: 1\n\n")
        caller.until(b"data: 1\n\n")
        scene.enforce(scene.others[change])
        scene.look()
        upstream.say(b"data: 2\n\n")
        caller.until(b"data: 2\n\n")
        upstream.say(b"")
        caller.until(END)
    assert scene.last().code == ""


@pytest.mark.parametrize("head", [HEAD, BODY], ids=["events", "body"])
def test_caller_that_leaves_ends_the_upstream(scene: Scene, head: bytes) -> None:
    """D5: while nothing is said, too."""
    upstream = Upstream(head)
    with watching(scene, upstream) as caller:
        upstream.say(b"data: 1\n\n")
        caller.until(b"data: 1\n\n")
    assert upstream.lost.wait(2)
    assert scene.last().code == "caller_gone"


def test_event_that_is_too_big_is_passed_on_in_pieces_and_cut_if_it_must_be(scene: Scene) -> None:
    """F15: a cap on what is held; beyond it an event is a body like any other."""
    upstream = Upstream()
    with watching(scene, upstream) as caller:
        upstream.say(b"data: " + b"x" * 70_000)
        caller.until(b"x" * 60_000)
        scene.enforce(scene.others["no customer portal"])
        assert not caller.rest().endswith(END)
    assert scene.last().code == "stream_narrowed"


def test_drain_ends_events_and_lets_a_body_be_finished(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SIGTERM: events end after the last whole one; a download gets its time."""
    opened = policy(scene.issuers, tmp_path_factory.mktemp("drain") / "overlay")
    stage = Stage(opened, scene.issuers, Limits(request_s=5))
    events, body = Upstream(), Upstream(BODY)

    async def script(peer: Peer) -> None:
        await (events if peer.number == 0 else body).script(peer)

    draining = Scene(stage, scene.issuers, opened)
    token = scene.issuers.token("customer")
    with stage:
        draining.play(script)
        with asking(stage, token) as one, asking(stage, token) as other:
            events.say(b"data: 1\n\ndata: half")
            one.until(b"data: 1\n\n")
            body.say(b"part")
            other.until(b"part")
            stage.loop.call_soon_threadsafe(stage._stop.set)
            one.until(END)
            body.say(b"last part")
            body.say(b"")
            other.until(b"last part\r\n" + END)


@given(st.lists(st.sampled_from([b"data: x", b"\n", b"\r", b"\r\n", b":", b""]), max_size=12))
def test_an_end_is_where_an_empty_line_was(parts: list[bytes]) -> None:
    """Against a grammar: what is passed on consists of whole events, what is held of none."""
    data = b"".join(parts)
    end = last_end(data)
    position = 0
    while position < end:
        found = EVENT.match(data, position)
        assert found is not None
        position = found.end()
    for known in range(len(data)):
        if last_end(data[:known]) == 0:
            assert last_end(data, known) == end
