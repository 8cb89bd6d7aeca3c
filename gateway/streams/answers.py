"""An answer that is still coming, ended early when it must be.

Events are passed on whole, each as soon as its last byte is there: whenever we end the stream,
the caller has read an event to its end or has nothing of it. An event of more than
``EVENT_BYTES`` is passed on in pieces, and ends like any other body if it must: by a reset.

A caller, and what stands between, would take a stream that is silent for long for a dead one. So
a comment is sent between two events then; of its upstream that says nothing.

Source: attack log row F15, D5, section 4 ("Timeouts"); WHATWG HTML, server-sent events, section
9.2.7 (a comment every 15 seconds or so).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from gateway.relay.upstream import UpstreamError, UpstreamInvalid, UpstreamResponse
from gateway.stations import Granted
from gateway.streams.register import End, OpenStream, OpenStreams, Sort

EVENT_BYTES: Final = 64 * 1024
COMMENT: Final = b":\n\n"
_REMARK_S: Final = 1.0
"""How long a comment may wait for a caller that reads slowly: it has something to read."""
_UNREAD_S: Final = 0.5
"""How long the end of what is not allowed any more may wait for a caller that reads slowly: it has
something to read that it should not have. With the register's times, within G5's two seconds."""
_DENIED: Final = frozenset({End.NARROWED, End.EXPIRED, End.REVOKED, End.UNDECIDED})
Send = Callable[[Any], Awaitable[None]]


def watched(
    response: UpstreamResponse,
    streams: OpenStreams,
    granted: Granted,
    *,
    again: Callable[[], Awaitable[End | None]],
    ended: Callable[[End], None],
) -> UpstreamResponse:
    """The same answer, registered until it is closed; ``ended`` is told when we end it.

    Cost: 4 us, nothing for one that is whole.
    """
    if response.done:
        return response
    return _Watched(response, streams, granted, again, ended)


def remarks(response: UpstreamResponse, send: Send) -> None:
    """Let an answer that is looked after, if it is events, send its comments like this. To be
    called when the head of the answer was sent."""
    if isinstance(response, _Watched):
        response.remark_by(send)


def cut_by(response: UpstreamResponse, cut: Callable[[], None]) -> None:
    """Let an answer that is looked after cut its caller's connection like this, when it has to end
    and its caller does not take what was passed on before."""
    if isinstance(response, _Watched):
        response.cut_by(cut)


def is_events(response: UpstreamResponse) -> bool:
    """Whether the body is a stream of events that may end after any of them."""
    types = [value for name, value in response.headers if name == b"content-type"]
    if len(types) != 1 or types[0].partition(b";")[0].strip().lower() != b"text/event-stream":
        return False
    return not any(name in {b"content-length", b"content-encoding"} for name, _ in response.headers)


class _Watched:
    """An UpstreamResponse that knows why it ended."""

    __slots__ = ("_closing", "_cut_caller", "_ended", "_events", "_held", "_next", "_pieces",
                 "_remark", "_response", "_send", "_stream", "_streams", "_torn", "_unread",
                 "_why", "done", "headers", "status")  # fmt: skip

    def __init__(
        self,
        response: UpstreamResponse,
        streams: OpenStreams,
        granted: Granted,
        again: Callable[[], Awaitable[End | None]],
        ended: Callable[[End], None],
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self.done = False
        self._response = response
        self._next = response.__aiter__().__anext__
        self._events = is_events(response)
        self._why: End | None = None
        self._ended = ended
        self._held = b""
        self._torn = False
        self._pieces = 0
        self._send: Send | None = None
        self._remark: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._cut_caller: Callable[[], None] | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._streams = streams
        identified = granted.placed.identified
        self._stream: OpenStream = streams.enter(
            Sort.EVENTS if self._events else Sort.BODY,
            subject="" if identified.principal is None else granted.placed.subject.subject_id,
            digest=identified.matched.snapshot.digest,
            expires_at=None if identified.principal is None else identified.principal.expires_at,
            again=again,
            on_end=self._cut,
        )

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._why is not None:
                self._over(self._why)
            try:
                piece = await self._next()
            except StopAsyncIteration:
                self._send = None  # the end is written next, and nothing behind it
                if self._why is not None:
                    self._over(self._why)
                return self._rest()
            except UpstreamError:
                if self._why is not None:
                    self._over(self._why)
                raise
            finally:
                if self._remark is not None:  # begun between two events, so it comes first
                    await asyncio.gather(self._remark, return_exceptions=True)
            if self._why is not None:
                self._over(self._why)
            self.done = self._response.done
            if self.done:
                self._send = None
            if not self._events:
                return piece
            if not self._held and not self._torn and piece.endswith(b"\n\n"):
                self._pieces += 1
                return piece  # as most of them come
            if whole := self._whole(piece):
                self._pieces += 1
                return whole

    async def aclose(self) -> None:
        self._streams.leave(self._stream)
        self._cut_caller = None  # its connection may have another answer next
        if self._unread is not None:
            self._unread.cancel()
        if self._remark is not None:
            self._remark.cancel()
        if self._closing is not None:
            await asyncio.gather(self._closing, return_exceptions=True)
        await self._response.aclose()

    def cut_by(self, cut: Callable[[], None]) -> None:
        """See `cut_by`."""
        self._cut_caller = cut

    def remark_by(self, send: Send) -> None:
        """See `remarks`."""
        if self._events:
            self._send = send
            self._stream.count = lambda: self._pieces
            self._stream.on_silence = self._silent

    def _silent(self) -> None:
        """Comment, if an event has been passed on (a byte-order mark may stand before the first),
        none is half passed on and the end is not on its way."""
        between = self._pieces and not self._torn and self._why is None
        if between and self._send is not None and self._remark is None:
            comment = self._comment(self._send)
            self._remark = asyncio.get_running_loop().create_task(comment)

    async def _comment(self, send: Send) -> None:
        try:
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(_REMARK_S):
                    message = {"type": "http.response.body", "body": COMMENT, "more_body": True}
                    await send(message)
        finally:
            self._remark = None

    def _whole(self, piece: bytes) -> bytes:
        """What of the events that are here may be passed on."""
        here, known = self._held + piece, len(self._held)
        end = len(here) if self.done else last_end(here, known)
        if end == 0 and (self._torn or len(here) > EVENT_BYTES):
            self._torn, self._held = True, b""
            return here
        self._torn = self._torn and end == 0
        self._held = here[end:]
        return here[:end]

    def _rest(self) -> bytes:
        """What an upstream left unfinished is its caller's to judge, at the end."""
        if not self._held:
            raise StopAsyncIteration
        rest, self._held, self._torn = self._held, b"", True
        return rest

    def _over(self, why: End) -> None:
        """End here, because somebody said so."""
        if self._events and not self._torn:
            raise StopAsyncIteration
        raise UpstreamInvalid(f"ended: {why}")

    def _cut(self, why: End) -> None:
        """Wake whoever waits for the next piece: the upstream's connection is cut."""
        self._why = why
        self._ended(why)
        loop = asyncio.get_running_loop()
        self._closing = loop.create_task(self._response.aclose())
        if why in _DENIED and self._cut_caller is not None:
            self._unread = loop.call_later(_UNREAD_S, self._cut_caller)


def last_end(data: bytes, known: int = 0) -> int:
    """Where the last whole event in ``data`` ends; 0 when there is none.

    A line ends with LF, CR or CRLF; an event ends with an empty line. The first ``known`` bytes
    are known to hold no such end.
    """
    since = max(0, known - 1)
    end = max(data.rfind(pair, since) for pair in (b"\n\n", b"\n\r", b"\r\r"))
    if end < 0:
        return 0
    end += 2
    return end + 1 if data[end - 1 : end + 1] == b"\r\n" else end
