"""Header names, values and Host against a running process.

Provenance: attack log section 3.2, rows B1-B17; `tests/gateway/test_headers.py` has each rule.
"""

from __future__ import annotations

import json

import pytest

from tests.adversary.process import Gateway, head
from tests.adversary.twice import STANCES

pytestmark = STANCES

PATH = "/portal/customer/x"
IDENTITY = ("x-gateway-subject", "x-gateway-audience", "x-gateway-profile",
            "x-gateway-assertion", "x-gateway-delegation", "x-request-id", "traceparent",
            "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host")  # fmt: skip
FORGED = {
    "B1 underscores": [("X_Forwarded_User", "forged"), ("X_Gateway_Audience", "forged"),
                       ("X-Gateway_Audience", "forged"), ("x_gateway-subject", "forged")],
    "B3 identity": [(name, "forged") for name in IDENTITY if name != "x-gateway-delegation"],
    "B4 forwarded family": [("X-Forwarded-Prefix", "/forged"), ("X-Forwarded-Proto", "forged"),
                            ("X-Forwarded-Port", "forged"), ("X-Forwarded-Host", "forged"),
                            ("Forwarded", "for=forged"), ("X-Forwarded-Uri", "/forged"),
                            ("X-Forwarded-Method", "FORGED")],
    "B6 twice": [("X-Role", "forged"), ("x-role", "forged"), ("X-Gateway-Audience", "forged"),
                 ("x-gateway-audience", "forged")],
    "B7 internal prefixes": [("X-Envoy-Original-Path", "/forged"), ("x-envoy-internal", "forged"),
                             ("X-Middleware-Subrequest", "forged"), ("X-Accel-Redirect", "forged")],
    "B9 forward-auth": [("X-Original-URL", "/forged"), ("X-Original-Method", "FORGED"),
                        ("X-Rewrite-URL", "/forged"), ("X-Auth-Request-User", "forged")],
    "B11 addresses": [("X-Forwarded-For", "forged"), ("X-Real-IP", "forged"),
                      ("True-Client-IP", "forged"), ("CF-Connecting-IP", "forged")],
    "B16 credentials": [("Impersonate-User", "forged"), ("Api-Key", "forged"),
                        ("X-Api-Key", "forged"), ("Proxy-Authorization", "forged"),
                        ("Private-Token", "forged"), ("Remote-User", "forged")],
    "W5 override": [("X-HTTP-Method-Override", "FORGED"), ("X-Method-Override", "FORGED"),
                    ("_method", "FORGED"), ("X-HTTP-Method", "FORGED")],
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("who", ["customer", ""])
def test_what_only_the_gateway_may_say_is_never_the_callers(
    gateway: Gateway, forged: list[tuple[str, str]], who: str
) -> None:
    """B1, B3, B4, B6, B7, B9, B11, B16, W5: with a token and without; ours stand once each."""
    assert gateway.ask("GET", PATH, who=who, headers=forged).status == 200
    (seen,) = gateway.arrived
    assert "forged" not in repr(seen).lower()
    assert all(len(seen.values(name)) == 1 for name in IDENTITY)
    assert seen.value("x-gateway-audience") == "customer"
    assert (seen.value("x-gateway-delegation") == "") is (who == "")


def test_no_forged_header_moves_anybody(gateway: Gateway) -> None:
    """B3, B6, B10: all of them at once, and a probe's agent: the same refusal as without."""
    forged = [header for some in FORGED.values() for header in some]
    agents = ("kube-probe/1.30", "ELB-HealthChecker/2.0", "GoogleHC/1.0")
    for agent in agents:
        headers = [*forged[:70], ("User-Agent", agent)]
        assert (
            gateway.ask("GET", "/portal/employee/x", who="customer", headers=headers).status == 403
        )
        assert gateway.ask("GET", "/portal/employee/x", headers=headers).status == 401
        assert gateway.ask("GET", "/v1/scope", headers=headers).status == 401
    assert gateway.arrived == []


def test_connection_takes_nothing_of_ours_away(gateway: Gateway) -> None:
    """B5: what is listed is the client's; ours is added afterwards."""
    listed = ", ".join([*IDENTITY, "x-custom", "host"])
    headers = [("X-Custom", "1"), ("Connection", listed)]
    assert gateway.ask("GET", PATH, who="customer", headers=headers).status == 200
    (seen,) = gateway.arrived
    assert all(len(seen.values(name)) == 1 for name in IDENTITY)
    assert seen.values("x-custom") == []
    assert len(seen.values("host")) == 1


def test_trailers_are_never_headers(gateway: Gateway) -> None:
    """B2: a credential, an identity and a Host in the trailers change nothing."""
    trailers = (
        b"Authorization: Bearer "
        + gateway.token("employee").encode()
        + (b"\r\nX-Gateway-Audience: employee\r\nHost: evil\r\nX-Z: forged\r\n")
    )
    body = b"1\r\nx\r\n0\r\n" + trailers + b"\r\n"
    lines = b"Host: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    (reply,) = gateway.replies(b"POST /portal/employee/x HTTP/1.1\r\n" + lines + body)
    assert reply.status == 401
    assert gateway.arrived == []
    chunked = head(gateway, b"POST /portal/customer/x HTTP/1.1",
                   b"Transfer-Encoding: chunked", b"Connection: close")  # fmt: skip
    (reply,) = gateway.replies(chunked + body)
    assert reply.status == 200
    (seen,) = gateway.arrived
    assert "forged" not in repr(seen)
    assert (seen.body, seen.value("x-gateway-audience")) == (b"x", "customer")


@pytest.mark.parametrize(
    "line",
    [b"X: a\x00b", b"X: a\x0bb", b"X: a\x7fb", b"X: a\x1b[31m", b"X\x00: a", b"X Y: a", b": a",
     b"X: a\rb", b"(X): a", b"X\xe9: a", b"X\t: a"],
)  # fmt: skip
def test_control_bytes_are_in_no_header(gateway: Gateway, line: bytes) -> None:
    """B8: NUL, CR and other controls in a value, anything but a token in a name: 400."""
    (reply,) = gateway.replies(head(gateway, b"GET /portal/customer/x HTTP/1.1", line))
    assert reply.status == 400
    assert gateway.arrived == []


def test_host_is_exactly_one(gateway: Gateway) -> None:
    """B13: none, two, two alike, an empty one."""
    for hosts in (b"", b"Host: a\r\nHost: b\r\n", b"Host: a\r\nHost: a\r\n", b"Host: \r\n"):
        (reply,) = gateway.replies(b"GET /portal/customer/x HTTP/1.1\r\n" + hosts + b"\r\n")
        assert (reply.status, json.loads(reply.body)["code"]) == (400, "bad_host")
    assert gateway.arrived == []


def test_address_of_a_caller_is_the_sockets(gateway: Gateway) -> None:
    """B12, B4: from loopback as well, where many servers believe X-Forwarded-For by default."""
    forged = [("X-Forwarded-For", "198.51.100.7"), ("X-Forwarded-Proto", "https")]
    assert gateway.ask("GET", PATH, who="customer", headers=forged).status == 200
    (seen,) = gateway.arrived
    assert seen.value("x-forwarded-for") == "127.0.0.1"
    assert seen.value("x-forwarded-proto") == "http"


def test_log_lines_are_one_line_of_ascii_each(gateway: Gateway) -> None:
    """B14: escape sequences and line breaks in every part of a request that may be logged."""
    target = "/portal/customer/x?q=%0d%0a%1b[31m"
    odd = b"\x1b[31m".decode("latin-1") + "\u00e9\u009b31m"
    headers = [
        ("User-Agent", "a\u009b31m\u00e9"),
        ("Referer", "\u009b2J"),
        ("Traceparent", "\u00e9"),
    ]
    assert gateway.ask("GET", target, who="customer", headers=headers).status == 200
    gateway.ask("GET", "/portal/customer/x", headers=[("X", odd)])
    lines = gateway.log_lines()
    assert all(line.isascii() and json.loads(line) for line in lines)
    assert not any(byte < 0x20 for line in lines for byte in line)


def test_same_name_in_two_cases_keeps_both_values(gateway: Gateway) -> None:
    """B17: folded, in order."""
    headers = [("X-A", "1"), ("x-a", "2"), ("X-a", "3")]
    assert gateway.ask("GET", PATH, who="customer", headers=headers).status == 200
    assert gateway.arrived[0].values("x-a") == ["1", "2", "3"]
