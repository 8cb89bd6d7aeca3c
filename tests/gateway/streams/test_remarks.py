"""Comments on streams of events that are silent: between events, and worth nothing to an upstream.

Provenance: attack log section 4 ("Timeouts"); WHATWG HTML, server-sent events, section 9.2.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.streams import answers
from gateway.streams.answers import COMMENT, remarks, watched
from gateway.streams.register import OpenStream, Sort
from tests.gateway.streams.staging import Scene
from tests.gateway.streams.test_answers import BODY, END, Upstream, watching

WORDS = st.lists(
    st.sampled_from(["data: a", "id: 1", ": own", "\n", "\n\n", "\r\n", "\r", "\ufeff"]),
    min_size=1,
    max_size=6,
).map(lambda words: "".join(words).encode())
PIECES = st.lists(st.tuples(WORDS, st.booleans()), max_size=10)
GRANTED: Any = SimpleNamespace(
    placed=SimpleNamespace(
        identified=SimpleNamespace(
            principal=None, matched=SimpleNamespace(snapshot=SimpleNamespace(digest=""))
        )
    )
)


def read(text: bytes) -> list[list[bytes]]:
    """The events of a stream as a client reads them: lines without comments, whole events only."""
    lines = re.split(rb"\r\n|\r|\n", text.removeprefix("\ufeff".encode()))
    events, lines_of_one = [], list[bytes]()
    for line in lines[:-1]:
        if line and not line.startswith(b":"):
            lines_of_one.append(line)
        elif not line and lines_of_one:
            events.append(lines_of_one)
            lines_of_one = []
    return events


class Register:
    """Where one stream is registered, and somebody to call it silent."""

    def __init__(self) -> None:
        self.stream: OpenStream | None = None

    def enter(self, sort: Sort, **words: Any) -> OpenStream:
        assert sort is Sort.EVENTS
        self.stream = OpenStream(sort, **words, now=0.0)
        return self.stream

    def leave(self, stream: OpenStream) -> None:
        assert stream is self.stream


class Pieces:
    """An upstream's events in pieces; before each of them ``silent`` may be called."""

    status, done = 200, False

    def __init__(self, pieces: list[tuple[bytes, bool]], silent: Callable[[], None]) -> None:
        self.headers = [(b"content-type", b"text/event-stream")]
        self._pieces = iter(pieces)
        self._silent = silent

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece, silence = next(self._pieces, (b"", False))
        if silence:
            self._silent()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        return


async def passed_on(
    pieces: list[tuple[bytes, bool]], *, slow: bool = False
) -> list[tuple[bytes, bool]]:
    """What a caller gets of these pieces, and what of it is a comment. A slow one reads each piece
    so late that the stream is called silent meanwhile."""
    register, received = Register(), list[tuple[bytes, bool]]()

    def silent() -> None:
        assert register.stream is not None
        register.stream.on_silence()

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        assert message["more_body"]
        received.append((message["body"], True))

    async def again() -> None:
        raise AssertionError("nothing changed")

    response = watched(
        Pieces(pieces, silent),
        register,  # type: ignore[arg-type]  # all that it uses
        GRANTED,
        again=again,
        ended=lambda _: None,
    )
    remarks(response, send)
    async for piece in response:
        received.append((piece, False))
        if slow:
            silent()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    await response.aclose()
    return received


@example(
    pieces=[("\ufeffdata: a".encode(), False), (b"\n\n", True)], event_bytes=64 * 1024, slow=False
)
@example(pieces=[(b"data: a\n\ndata: b", False)], event_bytes=64 * 1024, slow=True)
@given(pieces=PIECES, event_bytes=st.sampled_from([1, 8, 64 * 1024]), slow=st.booleans())
def test_comment_changes_no_event(
    pieces: list[tuple[bytes, bool]], event_bytes: int, slow: bool
) -> None:
    """Wherever pieces begin, whatever lines end with, and also where an event is too long to be
    held: a client reads the same events, and all other bytes are the upstream's."""
    said = b"".join(piece for piece, _ in pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "EVENT_BYTES", event_bytes)
        received = asyncio.run(passed_on(pieces, slow=slow))
    assert read(b"".join(piece for piece, _ in received)) == read(said)
    assert b"".join(piece for piece, ours in received if not ours) == said
    assert {piece for piece, ours in received if ours} <= {COMMENT}


def test_comment_stands_between_events_and_never_before_the_first() -> None:
    """A byte-order mark may stand there. While an event is half passed on none is said."""
    pieces = [(b"data: 1\n\n", True), (b"data: ", True), (b"2\n\n", True), (b"x" * 70_000, True),
              (b"\n\n", True), (b"data: 3\n\n", True)]  # fmt: skip
    assert asyncio.run(passed_on(pieces)) == [
        (b"data: 1\n\n", False), (COMMENT, True), (COMMENT, True), (b"data: 2\n\n", False),
        (COMMENT, True), (b"x" * 70_000, False), (b"\n\n", False), (COMMENT, True),
        (b"data: 3\n\n", False),
    ]  # fmt: skip


class Whole(Pieces):
    """As `Pieces`, but what it says it says at once: each piece may be the last one."""

    done = True


@pytest.mark.parametrize("upstream", [Pieces, Whole])
def test_nothing_is_said_behind_the_end(upstream: type[Pieces]) -> None:
    """The end waits for a caller that reads slowly, and the stream is called silent meanwhile: what
    was begun then would be written behind it, which is an error of ours in the log."""

    async def said() -> list[Any]:
        register, sent = Register(), list[Any]()

        async def send(message: Any) -> None:
            sent.append(message)

        async def again() -> None:
            raise AssertionError("nothing changed")

        response = answers._Watched(  # registered as what was not whole yet
            upstream([(b"data: 1\n\n", False)], lambda: None),
            register,  # type: ignore[arg-type]  # all that it uses
            GRANTED,
            again=again,
            ended=lambda _: None,
        )
        remarks(response, send)
        assert await anext(response) == b"data: 1\n\n"
        if upstream is Pieces:
            with pytest.raises(StopAsyncIteration):
                await anext(response)
        assert register.stream is not None
        register.stream.on_silence()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await response.aclose()
        return sent

    assert asyncio.run(said()) == []


@contextmanager
def later(scene: Scene) -> Iterator[Callable[[float], None]]:
    """A way to let the gateway look after its streams so many seconds from now."""
    streams = scene.stage.streams

    def at(seconds: float) -> None:
        async def look() -> None:
            streams._clock = lambda: time.monotonic() + seconds
            streams.look()

        scene.stage.call(look())

    try:
        yield at
    finally:
        streams._clock = time.monotonic


def test_caller_of_a_silent_stream_is_told_that_it_lives(scene: Scene) -> None:
    """Once in each fifteen seconds, and after an event they begin anew."""
    upstream = Upstream()
    with watching(scene, upstream) as caller, later(scene) as at:
        upstream.say(b"data: 1\n\n")
        caller.until(b"data: 1\n\n")
        at(0)
        at(16)
        caller.until(COMMENT)
        at(17)
        upstream.say(b"data: 2\n\n")
        caller.until(b"data: 2\n\n")
        at(18)
        at(34)
        upstream.say(b"data: 3\n\n")
        caller.until(b"data: 3\n\n")
        upstream.say(b"")
        caller.until(END)
    body = caller.received.partition(b"\r\n\r\n")[2]
    told = [piece for piece in re.split(rb"[0-9a-f]+\r\n(.*?)\r\n", body, flags=re.DOTALL) if piece]
    assert told == [b"data: 1\n\n", COMMENT, b"data: 2\n\n", COMMENT, b"data: 3\n\n"]


def test_comments_do_not_keep_a_silent_upstream_alive(scene: Scene) -> None:
    """Its own time is over (two seconds here) though its caller hears comments."""
    upstream = Upstream()
    with watching(scene, upstream) as caller, later(scene) as at:
        upstream.say(b"data: 1\n\n")
        caller.until(b"data: 1\n\n")
        at(0)
        at(16)
        caller.until(COMMENT)
        assert not caller.rest().endswith(END)
    assert scene.last().code == "truncated"


def test_body_that_is_no_stream_of_events_gets_no_comment(scene: Scene) -> None:
    upstream = Upstream(BODY)
    with watching(scene, upstream) as caller, later(scene) as at:
        upstream.say(b"first\n\n")
        caller.until(b"first\n\n")
        at(0)
        at(16)
        upstream.say(b"second\n\n")
        caller.until(b"second\n\n")
        upstream.say(b"")
        caller.until(END)
        assert COMMENT not in caller.received
