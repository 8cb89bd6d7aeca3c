"""The second transport: aiohttp's client behind the same interface.

For upstreams that the default pool does not get on with. It costs two to three times as
much per request (see DECISIONS) and is imported only when it is asked for
(``.venv/bin/pip install -e ".[aiohttp]"``).

Nothing of aiohttp's comfort is on: no redirect, no cookie, no decoding, no proxy from the
environment, no header of its own, no second reading of a target.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from gateway.relay.address import Address
from gateway.relay.connection import HEADER_BYTES, HEADER_COUNT
from gateway.relay.dial import context_of
from gateway.relay.exchange import HIGH_BYTES
from gateway.relay.framing import Framing, framing_of
from gateway.relay.upstream import (
    UpstreamError,
    UpstreamInvalid,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTimeout,
    UpstreamTimes,
    UpstreamUnavailable,
    whole,
)

_OWN_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


@dataclass(slots=True, kw_only=True)
class AiohttpPool:
    """An :class:`UpstreamTransport` over one aiohttp session, which is made on first use."""

    address: Address
    times: UpstreamTimes = field(default_factory=UpstreamTimes)
    limit: int = 256
    idle_s: float = 30.0
    _session: aiohttp.ClientSession | None = field(default=None, init=False)

    async def request(self, request: UpstreamRequest) -> UpstreamResponse:
        clock = asyncio.timeout(None if request.body else self.times.first_byte_s)
        question = _Question(request, clock, self.times)
        try:
            async with clock:
                response = cast(
                    _Response,
                    await self._opened().request(
                        request.method,
                        self._url(request.target),
                        headers=_headers_of(request),
                        data=None if request.body is None else question,
                        allow_redirects=False,
                    ),
                )
        except Exception as error:
            raise _ours(error, request, question) from error
        try:
            if response.status < 200:
                raise UpstreamInvalid("an interim answer that was not asked for")
            headers = [(name.lower(), value) for name, value in response.raw_headers]
            version = response.version or aiohttp.HttpVersion10
            framing = framing_of(
                headers,
                status=response.status,
                method=request.method,
                version=f"{version.major}.{version.minor}",
            )
        except UpstreamError:
            response.close()
            raise
        if framing.doubtful:
            response.part()
        return _Answer(response, headers, question, framing)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _url(self, target: bytes) -> URL:
        scheme = "https" if self.address.tls else "http"
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        text = target.decode("ascii")
        url = URL(f"{scheme}://{host}:{self.address.port}{text}", encoded=True)
        if url.raw_path_qs != text:  # an empty query, a fragment
            raise UpstreamInvalid("a target that this client would change")
        return url

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self.limit,
                    keepalive_timeout=self.idle_s,
                    ssl=context_of(self.address) or True,
                ),
                timeout=aiohttp.ClientTimeout(
                    total=self.times.total_s,
                    connect=self.times.connect_s,
                    sock_read=self.times.idle_s,
                ),
                response_class=_Response,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_OWN_HEADERS,
                trust_env=False,
                read_bufsize=HIGH_BYTES,
                max_line_size=HEADER_BYTES,
                max_field_size=HEADER_BYTES,
                max_headers=HEADER_COUNT,
            )
        return self._session


class _Question:
    """The body of a request on its way, and the time that the upstream has left.

    While a piece is with aiohttp the upstream must read it in ``write_s``; when all are, it
    must answer in ``first_byte_s``; while the caller has to speak, nobody waits for it.
    """

    def __init__(
        self, request: UpstreamRequest, clock: asyncio.Timeout, times: UpstreamTimes
    ) -> None:
        self.error: BaseException | None = None
        self.begun = self.ended = False
        self._request = request
        self._clock = clock
        self._times = times

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = self._request.body
        if body is None or self.begun:
            raise UpstreamInvalid("a body can be sent once")
        self.begun = True
        try:
            async for piece in whole(body, self._request.body_bytes):
                self._due(self._times.write_s)
                yield piece
                self._due(None)
        except BaseException as error:
            self.error = error
            raise
        self.ended = True
        self._due(self._times.first_byte_s)

    def _due(self, wait_s: float | None) -> None:
        try:
            at = None if wait_s is None else asyncio.get_running_loop().time() + wait_s
            self._clock.reschedule(at)
        except RuntimeError:
            return  # the answer has begun: its own times count


class _Response(aiohttp.ClientResponse):
    """A response that knows its connection, also after aiohttp has taken it back.

    aiohttp ends a body that lasts until the end of the connection with a reset just as with a
    proper end, tells a reader nothing of a chunk that cannot be parsed, and keeps a connection
    on which a body may still arrive that was announced where none may be.
    """

    lost: asyncio.Future[None] | None = None
    _came_over: ResponseHandler | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        self._came_over = connection.protocol
        if self._came_over is not None:
            self.lost = self._came_over.closed
        if self.lost is not None:
            self.lost.add_done_callback(self._cut)
        return await super().start(connection)

    def _cut(self, lost: asyncio.Future[None]) -> None:
        """Wake whoever waits for more of a body whose connection has ended."""
        _was_reset(lost)  # read: nobody else may
        content = getattr(self, "content", None)
        if content is not None and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection has ended"))

    def part(self) -> None:
        """End the connection, whoever holds it."""
        if self._came_over is not None:
            self._came_over.close()


class _Answer:
    """aiohttp's response as the relay reads it."""

    __slots__ = ("_framing", "_question", "_response", "headers", "status")

    def __init__(
        self,
        response: _Response,
        headers: list[tuple[bytes, bytes]],
        question: _Question,
        framing: Framing,
    ) -> None:
        self.status = response.status
        self.headers = headers
        self._response = response
        self._question = question
        self._framing = framing

    @property
    def done(self) -> bool:
        # One that lasts until the end of the connection is proven whole after its last piece.
        return bool(self._response.content.is_eof()) and not self._framing.until_eof

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self._response.content.readany():
                yield piece
        except Exception as error:
            raise _ours(error, None, self._question) from error
        lost = self._response.lost
        if self._framing.until_eof and (lost is None or not lost.done() or _was_reset(lost)):
            raise UpstreamInvalid("the answer ended before its end")

    async def aclose(self) -> None:
        unsent = self._question.begun and not self._question.ended
        if self.done and not self._framing.doubtful and not unsent:
            self._response.release()
        else:
            self._response.close()


def _was_reset(lost: asyncio.Future[None]) -> bool:
    return lost.cancelled() or lost.exception() is not None


def _headers_of(request: UpstreamRequest) -> list[tuple[str, str]]:
    try:  # aiohttp writes text as UTF-8, so only UTF-8 leaves as it came
        headers = [(name.decode("ascii"), value.decode("utf-8")) for name, value in request.headers]
    except UnicodeDecodeError as error:
        raise UpstreamInvalid("a header that this client would change") from error
    if request.body is not None and request.body_bytes is not None:
        headers.append(("content-length", str(request.body_bytes)))
    return headers


def _ours(error: Exception, request: UpstreamRequest | None, question: _Question) -> BaseException:
    """What a failure of aiohttp is called here; the body's own failure when that was the cause."""
    if question.error is not None and not isinstance(question.error, asyncio.CancelledError):
        return question.error
    if isinstance(error, UpstreamError):
        return error
    unsent = not question.begun
    match error:
        case aiohttp.ConnectionTimeoutError():
            return UpstreamUnavailable("no connection in time", unsent=unsent)
        case aiohttp.ClientConnectorError():
            return UpstreamUnavailable("no connection", unsent=unsent)
        case TimeoutError():
            return UpstreamTimeout("no answer in time")
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() if request is not None:
            return UpstreamUnavailable("connection lost before an answer")
        case aiohttp.ClientError() | ConnectionError():
            return UpstreamInvalid("the answer cannot be read to its end")
        case _:
            return UpstreamInvalid(f"the answer cannot be read ({type(error).__name__})")
