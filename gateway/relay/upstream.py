"""What the relay asks of a transport to an upstream, and how such a transport fails.

A transport moves one request and one response. It knows nothing of callers, policy or
headers that are ours to add; it never follows a redirect, decodes a body or keeps a cookie.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.errors import Code, GatewayError, Headers

_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class UpstreamError(GatewayError):
    """Base of a transport's failures. ``code`` is what a caller gets if nothing was sent yet."""

    code = Code.UPSTREAM_INVALID


class UpstreamUnavailable(UpstreamError):
    """No connection, or it ended before an answer began.

    ``unsent``: not a byte of the request left. ``again``: it may be sent once more: it is
    unsent, or was sent once and may be repeated (see :func:`repeatable`).
    """

    code = Code.UPSTREAM_UNAVAILABLE

    def __init__(self, reason: str, *, again: bool = False, unsent: bool = False) -> None:
        super().__init__(reason)
        self.again = again or unsent
        self.unsent = unsent


class UpstreamBusy(UpstreamUnavailable):
    """We have as many exchanges with it as we may have. It says nothing about its health."""

    code = Code.OVERLOADED

    def __init__(self, reason: str) -> None:
        super().__init__(reason, unsent=True)


class UpstreamTimeout(UpstreamError):
    """The upstream stayed silent for longer than it may."""

    code = Code.UPSTREAM_TIMEOUT


class UpstreamInvalid(UpstreamError):
    """The answer has no single reading, or ended before its end."""

    code = Code.UPSTREAM_INVALID


class CallerGone(GatewayError):
    """The caller left before its answer was ready. There is nobody to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTimes:
    """Seconds that one exchange may take in each of its phases.

    ``first_byte_s`` counts from the end of the request to the end of the answer's header
    block; ``idle_s`` is the longest silence inside a body that somebody waits for; ``write_s``
    the longest time for which the upstream does not read; ``total_s`` ends everything,
    streams too.
    """

    connect_s: float = 3.0
    first_byte_s: float = 30.0
    idle_s: float = 60.0
    write_s: float = 30.0
    total_s: float = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """What is sent. ``target`` is raw bytes and reaches the wire unchanged.

    ``body`` with ``body_bytes`` is sent with a length, without it in chunks; no ``body``
    means none. ``headers`` hold neither framing nor Connection; Host is among them.
    """

    method: str
    target: bytes
    headers: Headers
    body: AsyncIterator[bytes] | None = None
    body_bytes: int | None = None


def repeatable(request: UpstreamRequest) -> bool:
    """Whether sending it twice does what sending it once does (RFC 9110 section 9.2.2).

    A body can be read once only, so a request with one is never repeated.
    """
    return request.body is None and request.method in _IDEMPOTENT


def head_of(request: UpstreamRequest) -> bytes:
    """The request line and header block as they are sent, framing included."""
    parts = [request.method.encode("ascii"), b" ", request.target, b" HTTP/1.1\r\n"]
    for name, value in request.headers:
        parts += (name, b": ", value, b"\r\n")
    if request.body is not None:
        if request.body_bytes is None:
            parts.append(b"transfer-encoding: chunked\r\n")
        else:
            parts.append(b"content-length: %d\r\n" % request.body_bytes)
    elif request.method in {"POST", "PUT", "PATCH"}:
        parts.append(b"content-length: 0\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


async def whole(body: AsyncIterator[bytes], body_bytes: int | None) -> AsyncIterator[bytes]:
    """The pieces of a body, none of them empty, as many bytes as were declared.

    A byte more would be read as the next request on the same connection.

    Raises: UpstreamInvalid when they are more or fewer; whatever ``body`` raises.
    """
    left = body_bytes
    async for piece in body:
        if left is not None:
            left -= len(piece)
            if left < 0:
                raise UpstreamInvalid("the body is longer than it was declared")
        if piece:
            yield piece
    if left:
        raise UpstreamInvalid("the body is shorter than it was declared")


class UpstreamResponse(Protocol):
    """A status, headers as received (names lower-case) and the body, once, in pieces."""

    status: int
    headers: list[tuple[bytes, bytes]]

    @property
    def done(self) -> bool:
        """Whether the whole body has arrived, read or not."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body; each piece is all that has arrived by then.

        Raises: UpstreamError when it ends before its end.
        """
        ...

    async def aclose(self) -> None:
        """Give the connection back, or cut it when the body was not read to its end."""
        ...


class UpstreamTransport(Protocol):
    """One upstream as one audience sees it: connections are shared with nobody else."""

    async def request(self, request: UpstreamRequest) -> UpstreamResponse:
        """The response, once its header block is complete.

        A kept connection that turns out to be dead is replaced once, if the request may be
        repeated. An answer to a body that is still being sent is given at once.

        Raises: UpstreamError, and whatever the body's iterator raises.
        """
        ...

    async def aclose(self) -> None:
        """Cut every connection."""
        ...
