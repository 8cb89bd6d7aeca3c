"""Decisions for proxies: what a known block gets is what an unknown one gets."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.relay.hop import Hop
from policies.snapshot import Snapshot
from tests.gateway.fastpath.asking import Caller, Left, enforce, forget, head, left_by
from tests.gateway.forward_auth.asking import ADDRESSES, DIALECTS, told
from tests.gateway.stage import Stage

LINES = st.sampled_from(
    [
        "X-Forwarded-For: 203.0.113.9",
        "X-Forwarded-For: 203.0.113.9, 10.0.0.1",
        "X-Forwarded-Proto: https",
        "Accept: */*",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "X-Request-Id: mine-12345678",
        "X-Original-URI: /portal/partner/y",
        "X_Original_URI: /portal/partner/y",
        "X-Forwarded-Uri: /portal/partner/y",
        "X-Gateway-Subject: s.me",
        "Sec-WebSocket-Key: x",
        "Connection: keep-alive",
        "Connection: close",
        "Content-Length: 0",
        "Cookie: a=1",
    ]
)
TARGETS = st.sampled_from(
    [
        "/portal/customer/x",
        "/portal/customer/x?a=%20",
        "/portal/customer/../x",
        "/portal/partner/x",
        "/v1/scope",
        "/nowhere",
        "/portal/customer/x?access_token=a",
        "",
    ]
)


def asked(
    dialect: str, target: str, lines: list[str], *, method: str = "GET", token: str = ""
) -> bytes:
    lines_of = [f"GET /-/authz/{dialect} HTTP/1.1", "Host: gateway.test"]
    lines_of += told(dialect, method, target)
    bearer = [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join((*lines_of, *bearer, *lines, "", "")).encode("latin-1")


def left(stage: Stage, source: str, raw: bytes) -> Left:
    with Caller(stage, source=source) as caller:
        found = left_by(stage, caller, raw)
    lines = [
        line
        for line in found.answer.split(b"\r\n")
        if not line.startswith((b"x-gateway-assertion", b"traceparent"))
    ]
    return Left(b"\r\n".join(lines), found.asked, found.records)


@given(
    dialect=st.sampled_from(DIALECTS),
    target=TARGETS,
    method=st.sampled_from(["GET", "HEAD", "POST"]),
    lines=st.lists(LINES, max_size=3),
    audience=st.sampled_from(["customer", "customer", "partner", ""]),
    source=st.sampled_from(["", "", "stranger", "balancer"]),
)
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_third_decision_is_the_first(
    deciding: Stage,
    dialect: str,
    target: str,
    method: str,
    lines: list[str],
    audience: str,
    source: str,
) -> None:
    forget(deciding)
    token = deciding.issuers.token(audience) if audience else ""
    raw = asked(dialect, target, lines, method=method, token=token)
    address = ADDRESSES[source or dialect]
    first, second, third = (left(deciding, address, raw) for _ in range(3))
    assert second == first
    assert third == first


def test_proxy_that_tells_of_no_body_is_known_too(deciding: Stage) -> None:
    """As Envoy does; a caller of the relay that does so is asked in the ordinary way."""
    forget(deciding)
    token = deciding.issuers.token("customer")
    told_none = asked("envoy", "/portal/customer/x", ["Content-Length: 0"], token=token)
    relayed = head(deciding, "/portal/customer/x", "Content-Length: 0", token=token)
    for source, raw, taken in (("envoy", told_none, 1), ("stranger", relayed, 0)):
        with Caller(deciding, source=ADDRESSES[source]) as caller:
            assert caller.ask(raw).startswith(b"HTTP/1.1 200")
            before = deciding.lane.taken
            assert caller.ask(raw).startswith(b"HTTP/1.1 200")
            assert deciding.lane.taken - before == taken


def test_target_decides_though_its_block_is_known(deciding: Stage) -> None:
    """One connection, as a proxy keeps it: allowed, refused and allowed again."""
    forget(deciding)
    token = deciding.issuers.token("customer")
    with Caller(deciding, source=ADDRESSES["nginx"]) as caller:
        for target, status, taken in (
            ("/portal/customer/x", 200, 0),
            ("/portal/customer/y", 200, 1),
            ("/portal/partner/x", 403, 0),
            ("/portal/customer/../y", 403, 0),
            ("/portal/customer/x?q=1", 200, 1),
        ):
            before = deciding.lane.taken
            answer = caller.ask(asked("nginx", target, [], token=token))
            assert int(answer.split()[1]) == status, target
            assert deciding.lane.taken - before == taken, target


def test_block_of_a_proxy_is_unknown_from_elsewhere(deciding: Stage) -> None:
    """A stranger that sends the very bytes of a proxy is no proxy."""
    forget(deciding)
    raw = asked("nginx", "/portal/customer/x", [], token=deciding.issuers.token("customer"))
    for _ in range(2):
        with Caller(deciding, source=ADDRESSES["nginx"]) as caller:
            assert caller.ask(raw).startswith(b"HTTP/1.1 200")
    with Caller(deciding, source=ADDRESSES["stranger"]) as caller:
        assert caller.ask(raw).startswith(b"HTTP/1.1 403")


def test_dialect_is_part_of_what_is_known(deciding: Stage) -> None:
    """Traefik's and Caddy's words are the same: each is decided, and recorded, as asked."""
    forget(deciding)
    token = deciding.issuers.token("customer")
    with Caller(deciding, source=ADDRESSES["traefik"]) as caller:
        for dialect, taken in (("traefik", 0), ("caddy", 0), ("traefik", 1), ("caddy", 1)):
            before = deciding.lane.taken
            answer = caller.ask(asked(dialect, "/portal/customer/x", [], token=token))
            assert answer.startswith(b"HTTP/1.1 200")
            assert deciding.lane.taken - before == taken


def test_key_that_cannot_sign_is_told_in_the_ordinary_way(
    deciding: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection breaks: the proxy hears a 500, from which it refuses."""
    forget(deciding)
    token = deciding.issuers.token("customer")
    raw = asked("nginx", "/portal/customer/x", [], method="POST", token=token)
    with Caller(deciding, source=ADDRESSES["nginx"]) as caller:
        for _ in range(2):
            assert caller.ask(raw).startswith(b"HTTP/1.1 200")

        def unsigned(*_: object) -> bytes:
            raise ValueError("a key that cannot sign")

        monkeypatch.setattr(Hop, "signed", unsigned)
        assert caller.ask(raw).startswith(b"HTTP/1.1 500")


def test_policy_that_narrows_decides_the_next_request(
    deciding: Stage, others: dict[str, Snapshot]
) -> None:
    forget(deciding)
    raw = asked("nginx", "/portal/customer/x", [], token=deciding.issuers.token("customer"))
    with Caller(deciding, source=ADDRESSES["nginx"]) as caller:
        for _ in range(2):
            assert caller.ask(raw).startswith(b"HTTP/1.1 200")
        enforce(deciding, others["no customer portal"])
        try:  # under that policy this peer is not believed either
            assert caller.ask(raw).startswith(b"HTTP/1.1 403")
        finally:
            enforce(deciding, deciding.snapshot)


def test_decisions_over_reads_share_an_assertion_and_others_have_their_own(deciding: Stage) -> None:
    forget(deciding)
    token = deciding.issuers.token("customer")
    signed: dict[str, list[bytes]] = {}
    for method in ("GET", "HEAD", "POST"):
        raw = asked("nginx", "/portal/customer/x", [], method=method, token=token)
        with Caller(deciding, source=ADDRESSES["nginx"]) as caller:
            answers = [caller.ask(raw) for _ in range(4)]
        found = [re.findall(rb"x-gateway-assertion: ([^\r]+)\r\n", one)[0] for one in answers]
        signed[method] = found[1:]  # the first is told in the ordinary way
    assert [len(set(signed[method])) for method in ("GET", "HEAD", "POST")] == [1, 1, 3]
    assert not set(signed["GET"]) & set(signed["HEAD"])
