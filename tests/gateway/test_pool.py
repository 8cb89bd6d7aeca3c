"""The upstream pool: no byte of one exchange ever becomes part of another.

Provenance: attack log fact 1, rows S15, S17, D5; libraries Part B section 9.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from gateway.relay.pool import Address, Pool
from gateway.relay.upstream import UpstreamRequest
from tests.gateway.stage import OK, Stage, parse

CUSTOMER, PARTNER = "/portal/customer/x", "/portal/partner/x"


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", OK + b"POISON"),
        ("GET", OK + OK),
        ("GET", OK + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON"),
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\nPOISON"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 6\r\n\r\nPOISON"),
    ],
    ids=["bytes", "second answer", "another answer", "HEAD body", "204 body", "304 body"],
)
def test_extra_bytes_reach_no_later_caller(stage: Stage, method: str, answer: bytes) -> None:
    """S15: the connection is cut; five later callers of two identities see their own answers."""
    stage.upstream.answer = answer
    first = stage.ask(method, CUSTOMER, token=stage.issuers.token("customer"))
    assert first.status in {200, 204, 304}
    assert b"POISON" not in first.body
    stage.upstream.answer = lambda request: (
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + request.split(b"/x-")[1][:1]
    )
    for number in range(5):
        audience = "partner" if number % 2 else "customer"
        path = (PARTNER if number % 2 else CUSTOMER) + f"-{number}"
        reply = stage.ask("GET", path, token=stage.issuers.token(audience))
        assert reply.body == str(number).encode()


def test_connections_are_kept_per_audience_only(stage: Stage) -> None:
    """Two identities, one upstream: each audience has connections of its own."""
    opened: dict[str, int] = {}
    for audience, path in [("customer", CUSTOMER), ("partner", PARTNER)] * 3:
        stage.ask("GET", path, token=stage.issuers.token(audience))
    for (_, profile), pool in stage.hop._transports.items():
        opened[profile] = len(pool._open)  # type: ignore[attr-defined]
    assert opened["customer"] == 1
    assert opened["partner"] == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nZZ\r\n",
    ],
    ids=["length", "chunks", "bad chunk"],
)
def test_answer_cut_short_upstream_is_cut_short_downstream(stage: Stage, answer: bytes) -> None:
    """S17: the caller sees the connection end, never a finished answer."""
    stage.upstream.answer, stage.upstream.close_after = answer, True
    token = stage.issuers.token("customer").encode()
    head = f"GET {CUSTOMER} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ".encode()
    raw = stage.raw(head + token + b"\r\n\r\n")
    fields, _, body = raw.partition(b"\r\n\r\n")
    if b"content-length: 100" in fields:
        assert body.removesuffix(b"<reset>") == b"abc"
    else:
        assert b"transfer-encoding: chunked" in fields
        assert body.removesuffix(b"<reset>") == b"3\r\nabc\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: 1\r\n" * 500 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + OK,
    ],
    ids=["lengths", "CL+TE", "gzip", "101", "nonsense", "headers", "endless interim"],
)
def test_answer_without_one_reading_is_502(stage: Stage, answer: bytes) -> None:
    """An ambiguous upstream never decides what a caller reads."""
    stage.upstream.answer, stage.upstream.close_after = answer, True
    reply = stage.ask("GET", CUSTOMER, token=stage.issuers.token("customer"))
    assert (reply.status, b"upstream_invalid" in reply.body) == (502, True)


def test_interim_answers_are_skipped(stage: Stage) -> None:
    """100 and 103 are not the answer, and their headers are nobody's."""
    stage.upstream.answer = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK
    )
    reply = stage.ask("GET", CUSTOMER, token=stage.issuers.token("customer"))
    assert (reply.status, reply.body, reply.header("link")) == (200, b"ok", None)


def test_body_that_ends_with_the_connection_is_whole(stage: Stage) -> None:
    """No length and no chunks: the end of the connection is the end of the body."""
    stage.upstream.answer, stage.upstream.close_after = (
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        True,
    )
    reply = stage.ask("GET", CUSTOMER, token=stage.issuers.token("customer"))
    assert (reply.status, reply.body) == (200, b"until the end")


def test_http_1_0_caller_never_gets_chunks(stage: Stage) -> None:
    """Its answer is held until its length is known."""
    stage.upstream.answer = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    )
    token = stage.issuers.token("customer")
    raw = stage.raw(
        f"GET {CUSTOMER} HTTP/1.0\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    assert b"transfer-encoding" not in raw.lower()
    assert parse(raw)[0].body == b"ok"


def test_stale_connection_is_retried_once_for_get_and_never_for_post(stage: Stage) -> None:
    """A connection that the upstream closed while it was idle costs a GET nothing."""
    token = stage.issuers.token("customer")
    stage.upstream.close_after = True
    for _ in range(3):
        assert stage.ask("GET", CUSTOMER, token=token).status == 200
    stage.upstream.answer = b""
    before = len(stage.upstream.requests)
    assert stage.ask("POST", CUSTOMER, token=token, body=b"x").status == 502
    assert len(stage.upstream.requests) == before + 1


def test_silent_upstream_is_504(stage: Stage) -> None:
    """First byte within its time, or a clear code."""
    stage.upstream.answer, stage.upstream.hold = b"", True
    reply = stage.ask("GET", CUSTOMER, token=stage.issuers.token("customer"))
    assert (reply.status, b"upstream_timeout" in reply.body) == (504, True)


def test_body_streams_to_the_upstream_as_sent(stage: Stage) -> None:
    """A length stays a length, chunks stay chunks, bytes stay bytes."""
    token = stage.issuers.token("customer")
    stage.ask("POST", CUSTOMER, token=token, body=b"\x00" * 300_000)
    assert stage.upstream.requests[-1].endswith(b"\x00" * 300_000)
    head = f"POST {CUSTOMER} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    raw = f"{head}Authorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert parse(stage.raw(raw + b"3\r\nabc\r\n0\r\n\r\n"))[0].status == 200
    assert stage.upstream.requests[-1].endswith(b"3\r\nabc\r\n0\r\n\r\n")


def test_upstream_is_cut_when_the_caller_leaves_a_stream(stage: Stage) -> None:
    """D5: an endless answer ends with its reader."""
    stage.upstream.answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
    stage.upstream.hold = True
    token = stage.issuers.token("customer")
    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as sock:
        sock.sendall(
            f"GET {CUSTOMER} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        assert sock.recv(65536)
    assert stage.upstream.lost.wait(1.5)


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"],
    ids=["before the head", "before the body"],
)
def test_upstream_is_cut_when_the_caller_leaves_before_a_first_byte(
    stage: Stage, answer: bytes
) -> None:
    """D5: nobody waits for an answer, so nobody makes one; the record says who left."""
    stage.upstream.answer, stage.upstream.hold = answer, True
    token = stage.issuers.token("customer")
    head = f"POST {CUSTOMER} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as sock:
        sock.sendall(f"{head}Content-Length: 3\r\n\r\nabc".encode())
        assert stage.upstream.asked.wait(5)
    assert stage.records.some.wait(5)
    assert stage.records.all[0].code == "caller_gone"
    assert stage.upstream.lost.wait(5)


class Whisperer:
    """An upstream that sends bytes nobody asked for, when it is told to, after an answer."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.whisper, self.whispered = threading.Event(), threading.Event()
        self.cut = threading.Event()
        self.accepted = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def pool(self) -> Pool:
        return Pool(address=Address(host="127.0.0.1", port=self.listener.getsockname()[1]))

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            with sock:
                sock.recv(65536)
                sock.sendall(OK)
                if self.accepted == 1:
                    assert self.whisper.wait(5)
                    sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON")
                    self.whispered.set()
                    with contextlib.suppress(ConnectionResetError):
                        sock.recv(1)
                    self.cut.set()


@pytest.fixture
def whisperer() -> Iterator[Whisperer]:
    upstream = Whisperer()
    yield upstream
    upstream.whisper.set()
    # accept() is woken by shutdown, not by close
    upstream.listener.shutdown(socket.SHUT_RDWR)
    upstream.listener.close()
    upstream._thread.join(5)


async def body_of(pool: Pool) -> bytes:
    response = await pool.request(
        UpstreamRequest(method="GET", target=b"/", headers=((b"host", b"a"),))
    )
    try:
        return b"".join([piece async for piece in response])
    finally:
        await response.aclose()


def test_bytes_waiting_in_the_socket_are_seen_before_reuse(whisperer: Whisperer) -> None:
    """S15, the race: the event loop had no turn to read them between two requests."""

    async def scenario() -> None:
        pool = whisperer.pool
        assert await body_of(pool) == b"ok"
        whisperer.whisper.set()
        assert whisperer.whispered.wait(5)  # blocks the loop on purpose
        assert await body_of(pool) == b"ok"
        await pool.aclose()

    asyncio.run(scenario())
    assert whisperer.accepted == 2


def test_idle_connection_that_speaks_is_cut_at_once(whisperer: Whisperer) -> None:
    """S15: a connection that said anything unasked is never trusted again."""

    async def scenario() -> None:
        pool = whisperer.pool
        assert await body_of(pool) == b"ok"
        whisperer.whisper.set()
        assert await asyncio.to_thread(whisperer.cut.wait, 5)
        assert await body_of(pool) == b"ok"
        await pool.aclose()

    asyncio.run(scenario())
    assert whisperer.accepted == 2
