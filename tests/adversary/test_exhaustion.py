"""Callers that hold on: time, size and number, on both listeners of a running process.

Provenance: attack log section 3.8, rows D1-D7. Times are those of the process under test; only
that an end comes is asserted, never how soon.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.ingress.limits import Limits
from policies.snapshot import Snapshot
from retrieval.embedded import Embedded
from tests.adversary.process import Gateway, head, running_gateway
from tests.gateway.stage import Stage, parse
from tests.gateway.tokens import Issuers
from tests.services import Cluster, Database, fresh_database

LINE = b"POST /portal/customer/x HTTP/1.1"


def dribble(sock: socket.socket, pieces: Iterator[bytes], *, every_s: float) -> bytes:
    """Send a piece from time to time, also after the other side has closed; what comes back."""
    ended = threading.Event()

    def feed() -> None:
        for piece in pieces:
            try:
                sock.sendall(piece)
            except OSError:
                return
            if ended.wait(every_s):
                return

    feeder = threading.Thread(target=feed)
    feeder.start()
    received = b""
    try:
        while piece := sock.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    finally:
        ended.set()
        feeder.join(10)
    return received


def endless(begin: bytes, piece: bytes) -> Iterator[bytes]:
    yield begin
    while True:
        yield piece


def at_once(gateway: Gateway, *held: tuple[str, bytes, bytes]) -> list[bytes]:
    """What each of these connections gets: listener, what it begins with, what it repeats."""

    def one(listener: str, begin: bytes, piece: bytes) -> bytes:
        with gateway.connect(listener) as sock:
            return dribble(sock, endless(begin, piece), every_s=0.2)

    with ThreadPoolExecutor(len(held)) as threads:
        return list(threads.map(lambda some: one(*some), held))


def test_header_block_that_does_not_end_is_given_up(gateway: Gateway) -> None:
    """D1: silent, blank lines, half a line, endless lines: by the header time from the first
    moment, however much trickles in; 408 on both listeners."""
    begun = b"GET /livez HTTP/1.1\r\nHost: a\r\n"
    held = [(b"", b""), (b"", b"\r\n"), (b"G", b""), (b"GET /", b"a"), (begun, b"X: 1\r\n"),
            (begun + b"X: ", b"a")]  # fmt: skip
    both = [(listener, *one) for listener in ("data", "second") for one in held]
    for received in at_once(gateway, *both):
        assert [reply.status for reply in parse(received)] == [408]
    assert gateway.arrived == []


@pytest.mark.parametrize("listener", ["data", "second"])
def test_kept_connection_without_a_next_request_ends(gateway: Gateway, listener: str) -> None:
    """D1: after an answer too, silent or with half a line."""
    for rest in (b"", b"GET"):
        with gateway.connect(listener) as sock:
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            received = sock.recv(65536)
            sock.sendall(rest)
            while piece := sock.recv(65536):
                received += piece
        assert [reply.status for reply in parse(received)][1:] == ([408] if rest else [])


def test_body_below_the_least_rate_is_given_up(gateway: Gateway) -> None:
    """D2: it never falls silent, and never arrives: 408, and the upstream sees no end."""
    sized = head(gateway, LINE, b"Content-Length: 1000000")
    chunked = head(gateway, LINE, b"Transfer-Encoding: chunked")
    held = [(sized, b"a"), (sized, b""), (chunked, b"1\r\na\r\n"), (chunked, b""),
            (chunked + b"1;", b"e"), (chunked + b"1\r\na\r\n0\r\n", b"X: 1\r\n")]  # fmt: skip
    for received in at_once(gateway, *(("data", *one) for one in held)):
        assert [reply.status for reply in parse(received)] == [408]
    assert not any(seen.whole for seen in gateway.arrived)


def test_body_that_nobody_reads_holds_no_connection_of_the_second_listener(
    gateway: Gateway,
) -> None:
    """D2: answered, and ended: the rest of such a body would have no time of its own."""
    targets = ("/livez", "/metrics", "/admin/v1/policy/live", "/nothing")
    line = "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    held = [("second", line.format(target).encode(), b"a") for target in targets]
    for received in at_once(gateway, *held):
        assert received.count(b"HTTP/1.1 ") <= 1


@pytest.mark.slow
def test_body_that_nobody_reads_holds_no_connection_of_several_workers_either(
    services: Embedded,
    cluster: Cluster,
    migrated_template: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """D2: their supervisor reads what it passes on, within a time; others are answered."""
    folder = tmp_path_factory.mktemp("workers")
    post = b"POST /admin/v1/policy/live HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    raw = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with (
        fresh_database(cluster, template=migrated_template.name) as database,
        running_gateway(services, database, folder, workers=2) as gateway,
    ):
        for received in at_once(gateway, *[("second", post, b"a")] * 3):
            assert [reply.status for reply in parse(received)] == [408]
        for listener in ("data", "second"):
            (reply,) = gateway.replies(raw, listener=listener)
            assert reply.status in {200, 404}


@pytest.mark.parametrize("listener", ["data", "second"])
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"X: " + b"a" * 1_000_000 + b"\r\n", 431),
        (b"X: 1\r\n" * 5_000, 431),
        (b"X: 1\r\n" * 101, 431),
        (b"X" * 200_000 + b": 1\r\n", 431),
        (b"Cookie: " + b"a=b; " * 20_000 + b"\r\n", 431),
    ],
    ids=["megabyte", "five thousand", "one too many", "name", "cookies"],
)
def test_header_block_is_bounded(
    gateway: Gateway, listener: str, lines: bytes, status: int
) -> None:
    """D4: number, size and time; nothing of it is kept."""
    raw = b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n"
    assert [reply.status for reply in gateway.replies(raw, listener=listener)] == [status]
    assert gateway.arrived == []


@pytest.mark.parametrize("listener", ["data", "second"])
def test_target_and_trailers_are_bounded(gateway: Gateway, listener: str) -> None:
    """D4: a target of many kilobytes is 414; trailers and chunk extensions end like headers."""
    raw = b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    assert [reply.status for reply in gateway.replies(raw, listener=listener)] == [414]
    chunked = head(gateway, LINE, b"Transfer-Encoding: chunked")
    for flood in (b"1;" + b"e" * 1_000_000, b"1\r\nx\r\n0\r\n" + b"X: 1\r\n" * 100_000):
        gateway.raw(chunked + flood, listener=listener)
    assert not any(seen.whole for seen in gateway.arrived)


def test_guarded_body_is_bounded_whatever_it_declares(gateway: Gateway) -> None:
    """D6: 413 by its length before a byte, and in the middle when it comes in chunks."""
    line = b"POST /v1/retrieve HTTP/1.1"
    json = b"Content-Type: application/json"
    (reply,) = gateway.replies(head(gateway, line, json, b"Content-Length: 65537"))
    assert reply.status == 413
    chunks = (b"4000\r\n" + b"a" * 0x4000 + b"\r\n") * 8
    (reply,) = gateway.replies(head(gateway, line, json, b"Transfer-Encoding: chunked") + chunks)
    assert reply.status == 413


def test_range_of_a_guarded_route_is_nobodys(gateway: Gateway) -> None:
    """D7, F4: a hundred ranges change nothing; no part is ever served."""
    ranges = ("Range", "bytes=" + ",".join(f"{n}-" for n in range(500)))
    plain = gateway.ask("GET", "/v1/scope", who="customer")
    ranged = gateway.ask("GET", "/v1/scope", who="customer", headers=[ranges, ("If-Range", '"x"')])
    assert (ranged.status, ranged.body) == (plain.status, plain.body)
    assert ranged.status == 200


def test_pipelined_flood_is_answered_in_order_or_ends(gateway: Gateway) -> None:
    """D4: two thousand requests in one breath: read no faster than they are answered."""
    raw = b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n\r\n" * 2_000
    before = gateway.rss_kib()
    replies = gateway.replies(raw + head(gateway, b"GET /portal/customer/x HTTP/1.1",
                                         b"Connection: close"))  # fmt: skip
    assert [reply.status for reply in replies] == [200] * 2_001
    assert gateway.rss_kib() - before < 64 * 1024


def test_reader_that_stops_holds_nothing_for_ever(
    believing: Snapshot, issuers: Issuers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: an answer that is written, closed and not read ends when nothing of it is taken.

    The rest of it fits into the buffers of two sockets, so nobody waits for the caller any more.
    """
    monkeypatch.setattr("gateway.ingress.ending.STALL_S", 0.2)
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n" + b"." * 60_000
    for line in (b"", b"Connection: close\r\n"):
        with Stage(believing, issuers, Limits(keep_alive_s=1)) as stage, socket.socket() as caller:
            stage.data_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            stage.upstream.answer = answer
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.connect(("127.0.0.1", stage.port))
            caller.sendall(b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n")
            assert stage.records.some.wait(10)
            assert [record.status for record in stage.records.all] == [200]
            until = time.monotonic() + 20
            while connections_to(stage.port) and time.monotonic() < until:
                threading.Event().wait(0.05)
            assert connections_to(stage.port) == 0


def connections_to(port: int) -> int:
    """Connections of this machine whose listening side has not ended them."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ours = [line.split()[3] for line in lines if line.split()[1].endswith(f":{port:04X}")]
    return sum(state in {"01", "08"} for state in ours)
