"""How many connections one address may hold, and the refusals that no application hears of.

Provenance: issue 4 parts 1 and 7; attack log rows D1-D4.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingress.door import Door
from gateway.ingress.limits import Limits
from policies.snapshot import Snapshot
from tests.gateway.forward_auth.asking import ADDRESSES
from tests.gateway.forward_auth.conftest import trusting  # noqa: F401 - a fixture
from tests.gateway.stage import Stage, parse
from tests.gateway.streams.staging import Scene, policy
from tests.gateway.tokens import Issuers

REQUEST = b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n\r\n"
TIGHT = Limits(keep_alive_s=20, header_s=20, connections_per_peer=2)


@pytest.fixture(scope="module")
def tight(trusting: Snapshot, issuers: Issuers) -> Iterator[Stage]:  # noqa: F811
    """A gateway that lets an address have two connections."""
    with Stage(trusting, issuers, TIGHT) as stage:
        yield stage


def connect(stage: Stage, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", stage.port), 10, source_address=(source, 0))


def answered(sock: socket.socket) -> int:
    """The status of one request on this connection."""
    sock.sendall(REQUEST)
    (reply,) = parse(sock.recv(65536))
    return reply.status


def refused_unasked(stage: Stage, source: str = "127.0.0.1") -> bool:
    """Whether a connection is refused before it has said anything."""
    with connect(stage, source) as sock:
        sock.settimeout(0.5)
        try:
            return sock.recv(65536).startswith(b"HTTP/1.1 503")
        except TimeoutError:
            return False


def settled(stage: Stage) -> None:
    """Return when nobody is inside any more."""
    until = time.monotonic() + 10
    while stage.door._here and time.monotonic() < until:
        time.sleep(0.01)
    assert not stage.door._here


def test_an_address_has_its_share_and_others_go_on(tight: Stage) -> None:
    """The third is refused in our words before a byte of it is read; another address, and the two
    that are open, are served; who leaves makes room."""
    tight.reset()
    with connect(tight) as first:
        with connect(tight) as second:
            assert (answered(first), answered(second)) == (200, 200)
            with connect(tight) as third:
                (reply,) = parse(third.recv(65536))
                assert (reply.status, json.loads(reply.body)["code"]) == (503, "overloaded")
                assert third.recv(1) == b""
            code, peer, request_id = tight.turned_away[-1]
            assert (code, peer) == ("overloaded", "127.0.0.1")
            assert request_id == json.loads(reply.body)["request_id"]
            with connect(tight, "127.0.0.9") as other:
                assert answered(other) == 200
            assert (answered(first), answered(second)) == (200, 200)
        until = time.monotonic() + 10
        while refused_unasked(tight) and time.monotonic() < until:
            pass
        with connect(tight) as third:
            assert answered(third) == 200
    settled(tight)


def test_a_trusted_proxy_carries_more_than_one_callers_share(tight: Stage) -> None:
    """Its connections are counted and never refused."""
    held = [connect(tight, ADDRESSES["nginx"]) for _ in range(6)]
    assert {answered(sock) for sock in held} == {200}
    for sock in held:
        sock.close()
    settled(tight)


def test_a_socket_counts_until_it_ends(issuers: Issuers, tmp_path: Path) -> None:
    """It leaves the protocol of requests, not its share."""
    with Stage(policy(issuers, tmp_path / "overlay"), issuers, TIGHT) as stage:
        scene = Scene(stage, issuers, stage.snapshot, {})
        scene.play()
        with scene.socket() as caller, connect(stage):
            caller.send("a")
            assert caller.recv() == "a"
            assert refused_unasked(stage)
        settled(stage)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "bad_host"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000, "headers_too_large"),
        (b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", "target_too_long"),
        (b"GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "bad_framing"),
        (b"GET / HTTP/1.1\r\nHost: ", "request_timeout"),
    ],
)
def test_a_refusal_of_the_protocol_is_counted_and_told_once(
    stage: Stage, sent: bytes, code: str
) -> None:
    """With the request id that the caller got; and no record of a request is made."""
    before = stage.door.refused.get((code,), 0)
    (reply,) = parse(stage.raw(sent))
    assert json.loads(reply.body)["code"] == code
    assert stage.door.refused[code,] == before + 1
    assert stage.turned_away == [(code, "127.0.0.1", json.loads(reply.body)["request_id"])]
    assert stage.records.all == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_the_count_is_who_entered_and_did_not_leave(moves: list[tuple[str, bool]]) -> None:
    """Whatever the order; nobody who was refused is counted, and nothing stays behind."""
    door = Door(Limits(connections_per_peer=3))
    here = dict.fromkeys("abc", 0)
    for who, comes in moves:
        if comes:
            assert door.enter(who) == (here[who] < 3)
            here[who] = min(3, here[who] + 1)
        elif here[who]:
            door.leave(who)
            here[who] -= 1
    for who, count in here.items():
        for _ in range(count):
            door.leave(who)
    assert door._here == {}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "192.0.2.1", False),
    ],
)
def test_a_site_of_ipv6_is_one_address(one: str, other: str, same: bool) -> None:
    """RFC 6177: a customer has a /64 and more, so addresses inside it cost nothing."""
    door = Door(Limits(connections_per_peer=1))
    assert door.enter(one)
    assert door.enter(other) is not same
