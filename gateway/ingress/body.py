"""The body of a request: read in full within bounds, or passed on piece by piece.

A caller that leaves in the middle is an abort, never a short body.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from gateway.errors import Code, Headers, Refusal
from gateway.ingress.limits import Limits
from gateway.relay.upstream import CallerGone

Receive = Callable[[], Awaitable[Any]]


def declared_bytes(headers: Headers) -> int | None:
    """The length that the request declares; None when it is chunked or has no body."""
    found = [value for name, value in headers if name == b"content-length"]
    return int(found[0]) if found else None


def has_body(headers: Headers) -> bool:
    """Whether a body follows: by a length that is not zero, or by chunks."""
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and int(value)):
            return True
    return False


class Body:
    """The body of one request. It is read at most once; ``ended`` says whether to its end.

    ``bytes_max`` bounds one that is passed on; None leaves it to the upstream.
    """

    __slots__ = ("_bytes", "_headers", "_limits", "_receive", "bytes_max", "ended", "read_bytes")

    def __init__(self, receive: Receive, headers: Headers, limits: Limits) -> None:
        self._receive = receive
        self._headers = headers
        self._limits = limits
        self._bytes: bytes | None = None
        self.ended = not has_body(headers)
        self.read_bytes = 0
        self.bytes_max: int | None = None

    async def whole(self) -> bytes:
        """All of it, at most ``limits.body_bytes`` within ``limits.body_s``.

        Raises: Refusal ``body_too_large`` or ``request_timeout``; CallerGone.
        """
        if self._bytes is not None:
            return self._bytes
        if (declared_bytes(self._headers) or 0) > self._limits.body_bytes:
            raise Refusal(Code.BODY_TOO_LARGE, "declared")
        pieces = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for piece in self.pieces():
                    pieces += piece
                    if len(pieces) > self._limits.body_bytes:
                        raise Refusal(Code.BODY_TOO_LARGE, "received")
        except TimeoutError:
            raise Refusal(Code.REQUEST_TIMEOUT, "body") from None
        self._bytes = bytes(pieces)
        return self._bytes

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises: Refusal ``request_timeout`` after ``limits.body_idle_s`` of silence or below
        ``limits.body_rate``, ``body_too_large`` beyond ``bytes_max``; CallerGone.
        """
        limits, waited = self._limits, 0.0
        while not self.ended:
            earned_s = limits.body_s + self.read_bytes / limits.body_rate
            began = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, min(limits.body_idle_s, earned_s - waited))):
                    message = await self._receive()
            except TimeoutError:
                raise Refusal(Code.REQUEST_TIMEOUT, "silence inside a body") from None
            waited += time.monotonic() - began
            if message["type"] == "http.disconnect":
                raise CallerGone("the caller left inside its body")
            piece = message.get("body", b"")
            self.ended = not message.get("more_body", False)
            self.read_bytes += len(piece)
            if self.bytes_max is not None and self.read_bytes > self.bytes_max:
                raise Refusal(Code.BODY_TOO_LARGE, "received, for this route")
            if piece:
                yield piece
