"""One exchange over a transport, told in a line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gateway.relay.upstream import UpstreamError, UpstreamRequest, UpstreamTransport
from tests.gateway.relay.hostile import Script, Upstream


@dataclass(frozen=True)
class Told:
    """What came: a whole answer, or the error that ended it and what had come before."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    error: str = ""


def question(
    method: str = "GET",
    target: bytes = b"/",
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
    body: AsyncIterator[bytes] | None = None,
    body_bytes: int | None = None,
) -> UpstreamRequest:
    return UpstreamRequest(
        method=method,
        target=target,
        headers=((b"host", b"upstream.test"), *headers),
        body=body,
        body_bytes=body_bytes,
    )


async def told(transport: UpstreamTransport, request: UpstreamRequest) -> Told:
    """The answer to one request, closed afterwards; errors of the interface become words."""
    status, body = 0, b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    try:
        response = await transport.request(request)
        status, headers = response.status, tuple(response.headers)
        try:
            async for piece in response:
                body += piece
        finally:
            await response.aclose()
    except UpstreamError as error:
        return Told(status, headers, body, type(error).__name__)
    return Told(status, headers, body)


@contextlib.asynccontextmanager
async def between(
    transport: Callable[..., UpstreamTransport], script: Script, **options: Any
) -> AsyncIterator[tuple[UpstreamTransport, Upstream]]:
    """A client with ``options`` and the upstream that it reaches; both are closed afterwards."""
    async with Upstream(script) as upstream:
        client = transport(address=upstream.address, **options)
        try:
            yield client, upstream
        finally:
            await client.aclose()
