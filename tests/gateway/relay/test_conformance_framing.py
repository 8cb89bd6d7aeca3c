"""What an upstream's bytes may mean: the same for every transport.

Provenance: attack log fact 1 and rows S1-S10, S15, S17; RFC 9112 sections 5 to 7.
"""

from __future__ import annotations

import asyncio

import pytest

from gateway.relay.pool import Pool
from gateway.relay.upstream import UpstreamInvalid
from tests.gateway.relay.asking import Told, between, question, told
from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import Transport
from tests.gateway.relay.hostile import OK, Peer, answers

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def asked(transport: Transport, *pieces: bytes, end: bool = True, method: str = "GET") -> Told:
    """What a client is told by an upstream that says ``pieces``."""

    async def scenario() -> Told:
        async with between(transport, answers(*pieces, end=end)) as (client, _):
            return await told(client, question(method))

    return run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="short status"),
        pytest.param(b"HTTP/3.7 200 OK\r\ncontent-length: 0\r\n\r\n", id="version"),
        pytest.param(HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok", id="two lengths"),
        pytest.param(HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok", id="length twice"),
        pytest.param(HEAD + b"content-length: 2, 2\r\n\r\nok", id="length list"),
        pytest.param(HEAD + b"content-length: +2\r\n\r\nok", id="signed length"),
        pytest.param(HEAD + b"content-length: -2\r\n\r\nok", id="negative length"),
        pytest.param(HEAD + b"content-length: 0x2\r\n\r\nok", id="hexadecimal length"),
        pytest.param(HEAD + b"content-length: \r\n\r\nok", id="empty length"),
        pytest.param(
            HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            id="length and chunks",
        ),
        pytest.param(
            HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="gzip, chunked"
        ),
        pytest.param(HEAD + b"transfer-encoding: gzip\r\n\r\n0\r\n\r\n", id="gzip"),
        pytest.param(HEAD + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", id="xchunked"),
        pytest.param(
            HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            id="chunked twice",
        ),
        pytest.param(
            b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", id="1.0 chunked"
        ),
        pytest.param(HEAD + b"x: a\x00b\r\ncontent-length: 0\r\n\r\n", id="NUL"),
        pytest.param(HEAD + b"x y: a\r\ncontent-length: 0\r\n\r\n", id="blank in a name"),
        pytest.param(HEAD + b"x : a\r\ncontent-length: 0\r\n\r\n", id="blank after a name"),
        pytest.param(HEAD + b": a\r\ncontent-length: 0\r\n\r\n", id="no name"),
        pytest.param(HEAD + b"x: 1\r\n" * 500 + b"content-length: 0\r\n\r\n", id="500 headers"),
        pytest.param(
            HEAD + b"x: " + b"a" * 200_000 + b"\r\ncontent-length: 0\r\n\r\n", id="200 kB header"
        ),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            id="101",
        ),
        pytest.param(b"HTTP/1.1 099 Odd\r\ncontent-length: 0\r\n\r\n", id="status 099"),
        pytest.param(b"HTTP/1.1 600 Odd\r\ncontent-length: 2\r\n\r\nok", id="status 600"),
        pytest.param(b"HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\nok", id="status 999"),
    ],
)
def test_answer_without_one_reading_is_refused_before_its_body(
    transport: Transport, answer: bytes
) -> None:
    """No status, no header and no byte of it reaches the relay."""
    assert asked(transport, answer) == Told(0, (), b"", "UpstreamInvalid")


@pytest.mark.parametrize(
    ("rest", "came"),
    [
        pytest.param(b"3\r\nabc\r\nZZ\r\n", b"abc", id="no number"),
        pytest.param(b"3\r\nabc\r\n0x1\r\na\r\n0\r\n\r\n", b"abc", id="0x"),
        pytest.param(b"3\r\nabc\r\n-1\r\na\r\n0\r\n\r\n", b"abc", id="negative"),
        pytest.param(b"3\r\nabc\r\n" + b"F" * 17 + b"\r\na\r\n0\r\n\r\n", b"abc", id="17 digits"),
        pytest.param(b"3\r\nabcd\r\n0\r\n\r\n", b"abc", id="longer than its size"),
        pytest.param(b"3\nabc\r\n0\r\n\r\n", b"", id="bare LF after a size"),
        pytest.param(b"3;a\nb\r\nabc\r\n0\r\n\r\n", b"", id="LF in an extension"),
        pytest.param(b"3\r\nabc\r\n", b"abc", id="no last chunk"),
        pytest.param(b"3\r\nabc\r\n0\r\n", b"abc", id="no end after the last chunk"),
        pytest.param(b"5\r\nabc", b"abc", id="cut inside a chunk"),
    ],
)
def test_broken_chunks_end_in_an_error_never_in_an_end(
    transport: Transport, rest: bytes, came: bytes
) -> None:
    """S17: what came may have been passed on; the relay is told that it is not the whole."""
    answer = asked(transport, CHUNKED + rest)
    assert answer.error == "UpstreamInvalid"
    assert came.startswith(answer.body)


@pytest.mark.parametrize("sent", [0, 3])
def test_length_that_is_not_reached_is_an_error(transport: Transport, sent: int) -> None:
    """S17: a hundred bytes announced, three sent, connection closed."""
    answer = asked(transport, HEAD + b"content-length: 100\r\n\r\n" + b"abc"[:sent])
    assert answer.error == "UpstreamInvalid"


@pytest.mark.parametrize(
    "head", [HEAD + b"\r\n", CHUNKED + b"3\r\n"], ids=["until the end", "chunk"]
)
def test_reset_inside_a_body_is_an_error(transport: Transport, head: bytes) -> None:
    """A body that ends with its connection is whole after FIN, and cut after RST."""
    read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(head + b"abc")
        await read.wait()
        peer.reset()

    async def scenario() -> bytes:
        async with between(transport, script) as (client, _):
            response = await client.request(question())
            came = aiter(response)
            body = await anext(came)
            read.set()
            with pytest.raises(UpstreamInvalid):
                await anext(came)
            await response.aclose()
            return body

    assert run(scenario()) == b"abc"


@pytest.mark.parametrize(
    ("answer", "aiohttp_says"),
    [
        pytest.param(HEAD + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n", b"a b", id="obs-fold"),
        pytest.param(CHUNKED + b"0\r\nx: \x00\r\n\r\n", b"", id="NUL in a trailer"),
    ],
)
def test_lenient_reading_of_the_second_client_is_one_reading_all_the_same(
    transport: Transport, answer: bytes, aiohttp_says: bytes
) -> None:
    """S5: ours refuses. aiohttp joins a folded value and drops any trailer (named exemptions)."""
    said = asked(transport, answer)
    if transport is Pool:
        assert said.error == "UpstreamInvalid"
    else:
        assert (said.error, dict(said.headers).get(b"x", b"")) == ("", aiohttp_says)


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        pytest.param((OK,), b"ok", id="length"),
        pytest.param((CHUNKED + b"2\r\nok\r\n0\r\n\r\n",), b"ok", id="chunks"),
        pytest.param(
            (CHUNKED + b"1;ext=1\r\no\r\n1\r\nk\r\n0\r\ntrailer: x\r\n\r\n",), b"ok", id="trailer"
        ),
        pytest.param((HEAD + b"\r\nok",), b"ok", id="end of the connection"),
        pytest.param((b"HTTP/1.0 200 OK\r\n\r\nok",), b"ok", id="1.0"),
        pytest.param(tuple(OK[i : i + 1] for i in range(len(OK))), b"ok", id="byte by byte"),
        pytest.param(
            (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + OK),
            b"ok",
            id="interim answers",
        ),
        pytest.param((b"HTTP/1.1 204 No Content\r\n\r\n",), b"", id="204"),
        pytest.param((b"HTTP/1.1 204 No\r\ncontent-length: 0\r\n\r\n",), b"", id="204 length 0"),
        pytest.param((b"HTTP/1.1 304 Not\r\ncontent-length: 9\r\n\r\n",), b"", id="304"),
        pytest.param((b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",), b"no", id="404"),
    ],
)
def test_answer_with_one_reading_arrives_whole(
    transport: Transport, pieces: tuple[bytes, ...], body: bytes
) -> None:
    """Whatever way it is framed and cut into segments; interim headers and trailers are none."""
    answer = asked(transport, *pieces)
    assert (answer.body, answer.error) == (body, "")
    assert not {b"link", b"trailer"} & {name for name, _ in answer.headers}


def test_headers_arrive_as_sent_in_order_and_twice(transport: Transport) -> None:
    """Names in lower case, values byte for byte, Set-Cookie never joined, nothing decoded."""
    answer = asked(
        transport,
        HEAD + b"X-A: 1\r\nSet-Cookie: a=1\r\nset-cookie: b=\xff\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 2\r\n\r\nok",
    )
    assert answer.headers == (
        (b"x-a", b"1"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=\xff"),
        (b"content-encoding", b"gzip"),
        (b"content-length", b"2"),
    )
    assert answer.body == b"ok"


def test_redirect_is_an_answer_like_any_other(transport: Transport) -> None:
    """It is the caller's to follow; an upstream must not send the gateway anywhere."""
    answer = asked(
        transport,
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    )
    assert answer.status == 302


def test_head_has_no_body_whatever_its_length_says(transport: Transport) -> None:
    """The length is that of the body that a GET would have."""
    answer = asked(transport, HEAD + b"content-length: 100\r\n\r\n", end=False, method="HEAD")
    assert (answer.status, answer.body, answer.error) == (200, b"", "")


@pytest.mark.parametrize(
    "target",
    [
        b"/a%2e%2e/b",
        b"/a/../b/./c",
        b"/a/%2F?q=%20&x=[1]",
        b"/a;b/c,d",
        b"/%7e%41",
        b"//a?b?c",
        b"/a?",
    ],
)
def test_target_reaches_the_wire_byte_for_byte_or_not_at_all(
    transport: Transport, target: bytes
) -> None:
    """A11: bytes sent = bytes authorised. aiohttp would drop an empty query, so it refuses it."""

    async def scenario() -> tuple[Told, list[bytes]]:
        async with between(transport, answers(OK)) as (client, upstream):
            answer = await told(client, question(target=target))
            return answer, upstream.requests

    answer, requests = run(scenario())
    if target == b"/a?" and transport is not Pool:
        assert (answer.error, requests) == ("UpstreamInvalid", [])
    else:
        assert requests[0].startswith(b"GET " + target + b" HTTP/1.1\r\n")


def test_request_carries_the_given_headers_and_framing_only(transport: Transport) -> None:
    """B17: same names twice stay two; no agent, no accept, no cookie of the client's own."""

    async def scenario() -> bytes:
        async with between(transport, answers(OK)) as (client, upstream):
            await told(client, question(headers=[(b"x-a", b"1"), (b"x-a", b"2\xc3\xa9")]))
            return upstream.requests[0]

    lines = run(scenario()).split(b"\r\n")
    assert lines == [
        b"GET / HTTP/1.1",
        b"host: upstream.test",
        b"x-a: 1",
        b"x-a: 2\xc3\xa9",
        b"",
        b"",
    ]


def test_header_value_reaches_the_wire_byte_for_byte_or_not_at_all(transport: Transport) -> None:
    """A byte that is no UTF-8: aiohttp would write two for it, so it refuses it."""

    async def scenario() -> tuple[Told, list[bytes]]:
        async with between(transport, answers(OK)) as (client, upstream):
            answer = await told(client, question(headers=[(b"x-a", b"\xff")]))
            return answer, upstream.requests

    answer, requests = run(scenario())
    if transport is Pool:
        assert b"x-a: \xff\r\n" in requests[0]
    else:
        assert (answer.error, requests) == ("UpstreamInvalid", [])
