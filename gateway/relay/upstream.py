"""What the relay asks of a transport to an upstream, and how such a transport fails.

A transport moves one request and one response. It knows nothing of callers, policy or
headers that are ours to add; it never follows a redirect, decodes a body or keeps a cookie.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import Code, GatewayError, Headers


class UpstreamError(GatewayError):
    """Base of a transport's failures. ``code`` is what a caller gets if nothing was sent yet."""

    code = Code.UPSTREAM_INVALID


class UpstreamUnavailable(UpstreamError):  # noqa: N818 - reads as what it is
    """No connection, or it ended before an answer began."""

    code = Code.UPSTREAM_UNAVAILABLE


class UpstreamTimeout(UpstreamError):  # noqa: N818 - reads as what it is
    """The upstream stayed silent for longer than it may."""

    code = Code.UPSTREAM_TIMEOUT


class UpstreamInvalid(UpstreamError):  # noqa: N818 - reads as what it is
    """The answer has no single reading, or ended before its end."""

    code = Code.UPSTREAM_INVALID


class CallerGone(GatewayError):  # noqa: N818 - reads as what it is
    """The caller left before its answer was ready. There is nobody to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTimes:
    """Seconds that one exchange may take in each of its phases."""

    connect_s: float = 3.0
    first_byte_s: float = 30.0
    idle_s: float = 60.0
    write_s: float = 30.0


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

        Raises: UpstreamError, and whatever the body's iterator raises.
        """
        ...

    async def aclose(self) -> None:
        """Cut every connection."""
        ...
