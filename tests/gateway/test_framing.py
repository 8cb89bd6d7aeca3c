"""Framing, Host, limits and time at the listener.

Provenance: attack log sections 3.3 (S1-S16), 3.2 (B2, B13), 3.8 (D1, D4), 3.6 (W3, W4).
"""

from __future__ import annotations

import gc
import socket
import threading

import pytest

from gateway.ingress.protocol import PIPELINED_MAX, GuardedProtocol
from tests.gateway.stage import Stage, parse

LINE = b"POST /portal/customer/x HTTP/1.1\r\n"


def request(stage: Stage, headers: bytes, body: bytes = b"", line: bytes = LINE) -> bytes:
    token = stage.issuers.token("customer").encode()
    return line + b"Host: a\r\nAuthorization: Bearer " + token + b"\r\n" + headers + b"\r\n" + body


BAD = {
    "S1 length and chunks": (b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\nG"),
    "S1 chunks and length": (b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", b"0\r\n\r\nG"),
    "S2 two lengths": (b"Content-Length: 4\r\nContent-Length: 5\r\n", b"abcde"),
    "S2 two equal lengths": (b"Content-Length: 4\r\nContent-Length: 4\r\n", b"abcd"),
    "S2 list": (b"Content-Length: 4, 4\r\n", b"abcd"),
    "S2 plus": (b"Content-Length: +4\r\n", b"abcd"),
    "S2 hex": (b"Content-Length: 0x4\r\n", b"abcd"),
    "S2 minus": (b"Content-Length: -1\r\n", b""),
    "S2 empty": (b"Content-Length: \r\n", b""),
    "S3 gzip and chunked": (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "S4 xchunked": (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "S4 twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "S4 twice in one": (b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"),
    "S4 vertical tab": (b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "S4 blank before colon": (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
    "S4 identity": (b"Transfer-Encoding: identity\r\n", b""),
    "S5 folded": (b"X-A: 1\r\n 2\r\n", b""),
    "S6 bare line feed": (b"X-A: 1\nX-B: 2\r\n", b""),
    "S10 carriage return in a value": (b"X: \rTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "B8 nul in a value": (b"X: a\x00b\r\n", b""),
    "name with a blank": (b"X Y: a\r\n", b""),
    "W3 upgrade with a body": (
        b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n",
        b"ab",
    ),
}


@pytest.mark.parametrize(("headers", "body"), BAD.values(), ids=BAD)
def test_ambiguous_framing_is_refused_and_closed(stage: Stage, headers: bytes, body: bytes) -> None:
    """One 400, the connection closed, no second answer, nothing upstream."""
    hidden = b"GET /portal/customer/hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    replies = parse(stage.raw(request(stage, headers, body + hidden)))
    assert [reply.status for reply in replies] == [400]
    assert stage.upstream.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b"1;a\nb\r\nx\r\n0\r\n\r\n",
        b"1\nx\r\n0\r\n\r\n",
        b"0x1\r\nx\r\n0\r\n\r\n",
        b"-1\r\nx\r\n0\r\n\r\n",
        b"11111111111111111\r\nx\r\n0\r\n\r\n",
    ],
    ids=["S7 extension", "S7 size", "S8 hex prefix", "S8 minus", "S8 seventeen digits"],
)
def test_malformed_chunk_never_becomes_a_body(stage: Stage, body: bytes) -> None:
    """The upstream may have seen a beginning; it never sees an end, and the caller gets 400."""
    replies = parse(stage.raw(request(stage, b"Transfer-Encoding: chunked\r\n", body)))
    assert [reply.status for reply in replies] == [400]
    assert all(not seen.endswith(b"0\r\n\r\n") for seen in stage.upstream.requests)


def test_chunks_on_http_1_0_are_refused(stage: Stage) -> None:
    """S9."""
    line = b"POST /portal/customer/x HTTP/1.0\r\n"
    raw = request(stage, b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", line)
    assert parse(stage.raw(raw))[0].status == 400


@pytest.mark.parametrize(
    "hosts",
    [
        b"",
        b"Host: a\r\nHost: b\r\n",
        b"Host: a\r\nHost: a\r\n",
        b"Host: a/b@c\r\n",
        b"Host:\r\n",
        b"Host: a public\r\n",
        b"Host: a?x\r\n",
        b"Host: a#x\r\n",
        b"Host: a:b\r\n",
    ],
)
def test_host_is_exactly_one_name(stage: Stage, hosts: bytes) -> None:
    """B13, A15: httptools accepts all of these; we do not."""
    raw = stage.raw(b"GET /portal/customer/x HTTP/1.1\r\n" + hosts + b"\r\n")
    assert parse(raw)[0].status == 400
    assert b"bad_host" in raw
    assert stage.upstream.requests == []


def test_trailers_never_become_headers(stage: Stage) -> None:
    """B2: a credential, an identity and a second Host in the trailers change nothing."""
    employee = stage.issuers.token("employee").encode()
    raw = (
        b"POST /portal/employee/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\nAuthorization: Bearer " + employee + b"\r\nX-User: admin\r\n"
        b"Host: b\r\n\r\n"
    )
    assert parse(stage.raw(raw + b"GET"))[0].status == 401
    customer = request(
        stage,
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n",
        b"1\r\nx\r\n0\r\nX-Z: 1\r\n\r\n",
    )
    assert parse(stage.raw(customer))[0].status == 200
    assert b"x-z" not in stage.upstream.requests[0].lower()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"X: " + b"a" * 1_000_000 + b"\r\n", 431),
        (b"X: 1\r\n" * 5_000, 431),
        (b"X" * 200_000 + b": 1\r\n", 431),
    ],
    ids=["one megabyte", "five thousand", "endless name"],
)
def test_header_block_is_bounded(stage: Stage, headers: bytes, status: int) -> None:
    """D4."""
    raw = stage.raw(b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n")
    assert parse(raw.replace(b"<reset>", b""))[0].status == status
    assert stage.upstream.requests == []


def test_target_is_bounded(stage: Stage) -> None:
    """A path of many kilobytes is 414, before anything reads it."""
    raw = stage.raw(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert parse(raw.replace(b"<reset>", b""))[0].status == 414


@pytest.mark.parametrize("begun", [b"", b"GET /portal", b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
def test_connection_without_a_request_ends_in_408(stage: Stage, begun: bytes) -> None:
    """D1: idle, half a line, half a header block: all end by the header time."""
    assert parse(stage.raw(begun))[0].status == 408


def test_blank_lines_do_not_keep_a_connection_open(stage: Stage) -> None:
    """D1: line breaks after an answer must not switch the clock off."""
    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as sock:
        sock.sendall(request(stage, b"", b"", b"GET /portal/customer/x HTTP/1.1\r\n"))
        received = sock.recv(65536)
        sock.sendall(b"\r\n\r\n")
        while piece := sock.recv(65536):
            received += piece
    assert [reply.status for reply in parse(received)] == [200, 408]


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "OPTIONS", "PUT", "DELETE"])
def test_method_without_a_row_is_refused(stage: Stage, method: str) -> None:
    """W4, S14, W6: known to the parser or not, never proxied, also as a preflight."""
    target = b"a:443" if method == "CONNECT" else b"/portal/customer/x"
    raw = stage.raw(
        request(
            stage, b"Connection: close\r\n", b"", method.encode() + b" " + target + b" HTTP/1.1\r\n"
        )
    )
    assert parse(raw)[0].status == 405
    assert stage.upstream.requests == []


@pytest.mark.parametrize("method", [b"get", b"FOOBAR", b"G\x00T", b"GET\t"])
def test_unknown_method_is_refused_by_the_parser(stage: Stage, method: bytes) -> None:
    """W4: methods are case-sensitive and a closed list."""
    raw = stage.raw(request(stage, b"", b"", method + b" /portal/customer/x HTTP/1.1\r\n"))
    assert parse(raw)[0].status == 400
    assert stage.upstream.requests == []


def test_websocket_handshake_is_refused_before_any_upstream(stage: Stage) -> None:
    """W1: where the route lists no origin nobody opens a socket: 501 and closed."""
    raw = stage.raw(
        request(
            stage,
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            b"",
            b"GET /portal/customer/x HTTP/1.1\r\n",
        )
    )
    assert [reply.status for reply in parse(raw)] == [501]
    assert stage.upstream.requests == []


def test_h2c_upgrade_is_ignored_and_stripped(stage: Stage) -> None:
    """S13: answered as HTTP/1.1; the upstream never hears of it; the connection ends."""
    smuggled = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    raw = stage.raw(
        request(
            stage,
            b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
            smuggled,
            b"GET /portal/customer/x HTTP/1.1\r\n",
        )
    )
    assert [reply.status for reply in parse(raw)] == [200]
    assert b"upgrade" not in stage.upstream.requests[0].lower()
    assert b"http2-settings" not in stage.upstream.requests[0].lower()


def test_body_cut_short_is_an_abort_not_an_end(stage: Stage) -> None:
    """S16: the upstream must not take half a body for a whole one."""
    stage.raw(request(stage, b"Content-Length: 100\r\n", b"abc"), half_close=True)
    assert stage.upstream.requests == []
    assert stage.upstream.lost.wait(5)


def test_bad_pipelined_request_is_not_written_into_an_answer(stage: Stage) -> None:
    """An answer under way stays whole; the connection then ends without a second one."""
    stage.upstream.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789"
    good = request(stage, b"", b"", b"GET /portal/customer/x HTTP/1.1\r\n")
    replies = parse(stage.raw(good + b"BROKEN\r\n\r\n"))
    assert [reply.body for reply in replies][:1] == [b"0123456789"]
    assert len(replies) == 1


def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    """Sound pipelining works, each request judged by itself."""
    good = request(stage, b"", b"", b"GET /portal/customer/x HTTP/1.1\r\n")
    other = request(stage, b"Connection: close\r\n", b"", b"GET /portal/employee/x HTTP/1.1\r\n")
    assert [reply.status for reply in parse(stage.raw(good + other))] == [200, 403]


def test_requests_far_ahead_of_their_answers_wait_as_bytes(stage: Stage) -> None:
    """D3: ten thousand of them in a read are neither parsed at once nor lost."""
    count, length = 3_000, 0
    line = b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n\r\n"
    seen: list[int] = []

    async def longest() -> int:
        protocols = [one for one in gc.get_objects() if isinstance(one, GuardedProtocol)]
        return max(len(one.pipeline) for one in protocols)

    with socket.create_connection(("127.0.0.1", stage.port), 20) as sock:
        sender = threading.Thread(target=sock.sendall, args=(line * count,))
        sender.start()
        while length < count:
            piece = sock.recv(65536)
            assert piece
            length += piece.count(b"\r\nx-request-id: ")
            if len(seen) < 20:
                seen.append(stage.call(longest()))
        sender.join()
    assert max(seen) <= PIPELINED_MAX + 4096 // len(line) + 1
    assert len(stage.upstream.requests) == count


def test_a_pipelining_caller_that_leaves_ends_what_is_under_way(stage: Stage) -> None:
    """uvicorn tells only the newest request of a connection; the one under way waits before it."""
    stage.upstream.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc"
    stage.upstream.hold = True
    good = request(stage, b"", b"", b"GET /portal/customer/x HTTP/1.1\r\n")
    with socket.create_connection(("127.0.0.1", stage.port)) as caller:
        caller.sendall(good * 3)
        assert stage.upstream.asked.wait(5)
    assert stage.upstream.lost.wait(5)
    assert stage.records.some.wait(5)
    assert len(stage.upstream.requests) == 1


def test_expectation_other_than_continue_is_refused(stage: Stage) -> None:
    """Expect is never passed on unread."""
    raw = stage.raw(request(stage, b"Expect: 200-maybe\r\n"))
    assert parse(raw)[0].status == 417


def test_dribbled_body_ends_in_408(stage: Stage) -> None:
    """D2: silence inside a body is bounded on guarded and opaque routes alike."""
    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as sock:
        sock.sendall(request(stage, b"Content-Length: 100\r\n", b"a"))
        received = b""
        while piece := sock.recv(65536):
            received += piece
    assert parse(received)[0].status == 408
