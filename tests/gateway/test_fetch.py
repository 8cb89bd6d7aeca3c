"""Key sets from addresses: bounded, unredirected, encrypted or loopback.

Provenance: attack log rows J4, J13.
"""

from __future__ import annotations

import asyncio

import pytest

from gateway.authn.key_source import KeySource
from gateway.relay.fetch import address_of, fetch
from gateway.relay.upstream import UpstreamError
from tests.gateway.stage import Upstream
from tests.gateway.tokens import Issuers


def fetched(answer: bytes) -> bytes:
    """What ``fetch`` makes of one answer of a loopback server."""
    upstream = Upstream()
    upstream.answer, upstream.close_after = answer, True

    async def scenario() -> bytes:
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            return await fetch(f"http://127.0.0.1:{port}/jwks?a=1")
        finally:
            server.close()
            await server.wait_closed()
            assert upstream.requests[0].startswith(b"GET /jwks?a=1 HTTP/1.1\r\n")

    return asyncio.run(scenario())


def test_document_is_fetched_whole() -> None:
    """By length or by chunks."""
    assert fetched(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}") == b"{}"
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert fetched(chunks) == b"{}"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 700000\r\n\r\n" + b"a" * 700_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}",
    ],
    ids=["redirect", "status", "too large", "cut short"],
)
def test_anything_but_a_whole_bounded_200_is_an_error(answer: bytes) -> None:
    """Then the last good keys count; a redirect is never followed."""
    with pytest.raises(UpstreamError):
        fetched(answer)


@pytest.mark.parametrize(
    "url", ["http://idp.example/jwks", "ftp://127.0.0.1/x", "file:///etc/x", "https://a@b/x", "x"]
)
def test_address_must_be_encrypted_or_loopback(url: str) -> None:
    """Nothing is fetched in the clear from another machine."""
    with pytest.raises(UpstreamError):
        address_of(url)


def test_nobody_listening_leaves_no_keys() -> None:
    """The source maps it to `identity_unavailable`; see `test_tokens`."""

    async def scenario() -> None:
        with pytest.raises(UpstreamError):
            await fetch("http://127.0.0.1:1/jwks")

    asyncio.run(scenario())


def test_keys_come_from_the_issuers_address(issuers: Issuers) -> None:
    """The whole way: address, set, key."""
    import json

    body = json.dumps(issuers.jwks("idp:staff")).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    async def through(url: str) -> bytes:
        assert url == "https://idp/jwks"
        return await asyncio.to_thread(fetched, answer)

    async def scenario() -> None:
        source = KeySource(uri="https://idp/jwks", text="", fetch=through)
        assert await source.key_for("ec", "ES256")

    asyncio.run(scenario())
