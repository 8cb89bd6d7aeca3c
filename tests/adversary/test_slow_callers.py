"""Two thousand callers that hold on, and everybody else. Attack log row D1; the issue's number."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest

from retrieval.embedded import Embedded
from tests.adversary.process import Gateway, head, running_gateway
from tests.services import Cluster, Database, fresh_database

MANY = 2_000
PATIENT = """
[limits]
connections_per_peer_max = 4000
header_ms = 120000
body_ms = 120000
body_idle_ms = 120000
"""
"""Times so long that none of the slow ones has ended when the others are done."""


@pytest.fixture
def patient(
    services: Embedded,
    cluster: Cluster,
    migrated_template: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """A gateway that waits for two minutes, started with room for 512 open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * MANY:
        pytest.skip(f"this machine allows {hard} open files")
    folder = tmp_path_factory.mktemp("patient")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with (
            fresh_database(cluster, template=migrated_template.name) as database,
            running_gateway(services, database, folder, toml=PATIENT) as gateway,
        ):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * MANY), hard))
            yield gateway
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_thousand_slow_callers_keep_nobody_out(patient: Gateway) -> None:
    """D1: silent, inside a header block, inside a body: the others are answered, in full, in
    order, and the memory that the slow ones take is bounded."""
    begun = (
        b"",
        b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\nX: ",
        head(patient, b"POST /v1/retrieve HTTP/1.1", b"Content-Type: application/json",
             b"Content-Length: 1000") + b"{",
    )  # fmt: skip
    before = patient.rss_kib()
    with contextlib.ExitStack() as held:
        slow: list[socket.socket] = []
        for number in range(MANY):
            slow.append(held.enter_context(patient.connect()))
            slow[-1].sendall(begun[number % len(begun)])
        for number in range(200):
            who = ("customer", "partner", "employee")[number % 3]
            reply = patient.ask("GET", f"/portal/{who}/{number}", who=who)
            assert reply.status == 200
        assert patient.sockets() > MANY
        raw = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        (alive,) = patient.replies(raw, listener="second")
        assert alive.status == 200
        assert patient.rss_kib() - before < 200 * 1024
        for one in slow[::100]:  # none of them was ended to make room
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
    assert len(patient.arrived) == 200
    assert patient.settled_sockets(100) <= 100
    assert patient.faults() == []
