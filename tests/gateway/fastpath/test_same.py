"""The law of the lane: whatever is asked, a gateway that knows the caller leaves what one leaves
that does not: the answer, what the upstream gets, what is recorded."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.fastpath.asking import Caller, forget, head, left_by
from tests.gateway.stage import OK, Stage
from tests.gateway.test_llhttp import authorised

TRACE = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
LINES = st.sampled_from(
    [
        "Accept: text/html",
        "Accept-Encoding: gzip",
        "Cookie: a=1; gateway_x=2; b=3",
        "Connection: keep-alive",
        "Connection: Keep-Alive",
        "connection: keep-alive, x-one",
        "Proxy-Connection: keep-alive",
        "Proxy-Connection: close",
        "X-One: 1",
        "X_One: 2",
        "X-Gateway-Subject: s.me",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Host: evil.test",
        "Forwarded: for=1.2.3.4",
        "If-None-Match: x",
        "Range: bytes=0-1",
        "X-HTTP-Method-Override: DELETE",
        "Content-Length: 0",
        "Expect: 100-continue",
        "TE: trailers",
        "Traceparent: 00-" + TRACE + "-01",
        "traceparent: 00-" + TRACE + "-00",
        "TRACEPARENT: 00-" + TRACE + "-01",
        "traceparent:00-" + TRACE + "-01",
        "traceparent: 00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "traceparent: junk",
        "X-Request-Id: mine-12345678",
        "x-request-id: other.12345678",
        "X-Request-ID: short",
        "X-Delegation: x",
        "X-Gateway-Delegation: x",
        "Upgrade: h2c",
        "Empty:",
        "Spaced:   a   ",
        "Latin: \xe9",
    ]
)
TARGETS = st.sampled_from(
    [
        "/portal/customer/x",
        "/portal/customer/x?a=1&b=%20",
        "/portal/customer/a/b/c.html",
        "/portal/customer/",
        "/portal/customer/x/",
        "/portal/customer/x//",
        "/portal/customer/../x",
        "/portal/customer/%2e%2e/x",
        "/portal/customer/a;b",
        "/portal/customer//x",
        "/portal/customer/x?access_token=abc",
        '/portal/customer/x?a="',
        "/portal/customer/x#y",
        "/portal/partner/x",
        "/portal/employee/x",
        "/portal/nowhere/x",
        "/-/authz/nginx",
        "/.well-known/jwks.json",
        "/",
        "//portal/customer/x",
        "http://gateway.test/portal/customer/x",
    ]
)
ANSWERS = st.sampled_from(
    [
        OK,
        b"HTTP/1.1 404 No\r\nContent-Length: 4\r\nX-A: 1\r\nServer: s\r\nETag: x\r\n\r\nnone",
        b"HTTP/1.1 200 K\r\nSet-Cookie: a=1\r\nSet-Cookie: gateway_=\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX_Bad name: 1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-Bad: \x01\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nDate: Mon, 30 Nov 2026 08:00:00 GMT\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nVary: Accept\r\nCache-Control: public\r\n\r\nok",
        b"HTTP/1.1 103 Early\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n" + b"x" * 300_000,
        b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"garbage",
    ]
)


@given(
    target=TARGETS,
    lines=st.lists(LINES, max_size=4),
    audience=st.sampled_from(["customer", "customer", "partner", "employee", ""]),
    answer=ANSWERS,
)
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_third_request_leaves_what_the_first_left(
    stage: Stage, target: str, lines: list[str], audience: str, answer: bytes
) -> None:
    """Three times the same bytes: by the ordinary way, then maybe beside it."""
    forget(stage)
    stage.upstream.answer = answer
    raw = head(stage, target, *lines, audience=audience)
    left = []
    for _ in range(3):
        with Caller(stage) as caller:
            left.append(left_by(stage, caller, raw))
    assert left[1] == left[0]
    assert left[2] == left[0]


@pytest.mark.parametrize("name", ["Connection", "Proxy-Connection"])
def test_caller_that_wants_its_connection_closed_finds_it_closed_each_time(
    stage: Stage, name: str
) -> None:
    """Parsers read both names alike, so whoever parses nothing has to know both."""
    forget(stage)
    raw = head(stage, "/portal/customer/x", f"{name}: close", audience="customer")
    for _ in range(3):
        with Caller(stage) as caller:
            caller.sock.sendall(raw)
            heard = b""
            while piece := caller.sock.recv(65536):
                heard += piece
        assert b"connection: close" in heard


@given(first=TARGETS, second=TARGETS, lines=st.lists(LINES, max_size=2))
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_target_is_judged_alike_whether_its_caller_is_known(
    stage: Stage, first: str, second: str, lines: list[str]
) -> None:
    """One header block, two targets: the second one after the first, and alone."""
    token = stage.issuers.token("customer")
    raws = [head(stage, target, *lines, token=token) for target in (first, second)]
    forget(stage)
    with Caller(stage) as caller:
        alone = left_by(stage, caller, raws[1])
    forget(stage)
    for raw in (raws[0], raws[0]):
        with Caller(stage) as caller:
            caller.ask(raw)
    with Caller(stage) as caller:
        assert left_by(stage, caller, raws[1]) == alone


def test_fixtures_of_llhttp_leave_the_same_twice(shared_data: Path, stage: Stage) -> None:
    """All 117, aimed at an open portal, with a caller that is known already."""
    lines = (shared_data / "http" / "llhttp_requests_strict.jsonl").read_text().splitlines()
    token = f"\r\nAuthorization: Bearer {stage.issuers.token('customer')}\r\n".encode()
    assert len(lines) == 117
    for fixture in map(json.loads, lines):
        raw = authorised(base64.b64decode(fixture["input_b64"]), b"/portal/customer/x")
        raw = raw.replace(b"\r\n", token, 1)
        left: list[object] = []
        for _ in range(3):
            with Caller(stage) as caller:
                one = left_by(stage, caller, raw)
                # a body that breaks off is recorded when its upstream has gone, some time later
                left.append((one.answer, one.asked))
        assert left[1] == left[0], fixture["id"]
        assert left[2] == left[0], fixture["id"]


def test_names_of_headers_leave_the_same_twice(shared_data: Path, stage: Stage) -> None:
    """All 563, twelve in each request, with a value each."""
    text = (shared_data / "http" / "header_names.txt").read_text()
    names = [line.strip() for line in text.splitlines() if line.strip()]
    token = stage.issuers.token("customer")
    for at in range(0, len(names), 12):
        lines = [f"{name}: 1" for name in names[at : at + 12] if name.isascii()]
        raw = head(stage, "/portal/customer/x", *lines, token=token)
        left = []
        for _ in range(3):
            with Caller(stage) as caller:
                left.append(left_by(stage, caller, raw))
        assert left[1] == left[0], lines
        assert left[2] == left[0], lines


@pytest.mark.parametrize("cut", ["traceparent", "X-Request-Id"])
@pytest.mark.parametrize("mark", [b"\0", b"\0008", b"\1", b"\0018", b"\2", b""])
def test_mark_in_place_of_what_was_cut_out_is_no_second_reading(
    stage: Stage, cut: str, mark: bytes
) -> None:
    """A block that is remembered by a mark, and bytes that hold the mark themselves."""
    values = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "X-Request-Id": "12345678"}
    line = f"{cut}: {values[cut]}"
    token = stage.issuers.token("customer")
    raw = head(stage, "/portal/customer/x", line, token=token)
    marked = raw.replace(b"\r\n" + line.encode(), mark, 1)
    left = []
    for known in (False, True):
        forget(stage)
        with Caller(stage) as caller:
            if known:
                caller.ask(raw)
                caller.ask(raw)
            left.append(left_by(stage, caller, marked).answer)
    assert left[0].startswith(b"HTTP/1.1 400" if mark else b"HTTP/1.1 200")
    assert left[1] == left[0]


def test_lane_takes_the_second_request_and_another_target(stage: Stage) -> None:
    """The other tests would hold, too, if nothing was ever taken."""
    forget(stage)
    token = stage.issuers.token("customer")
    with Caller(stage) as caller:
        for target, taken in (("x", 0), ("x", 1), ("y?q=1", 1), ("../x", 0), ("x", 1)):
            before = stage.lane.taken
            caller.ask(head(stage, f"/portal/customer/{target}", token=token))
            assert stage.lane.taken - before == taken, target
