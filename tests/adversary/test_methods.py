"""Methods, upgrades and preflights against a running process.

Provenance: attack log section 3.6, rows W1-W6.
"""

from __future__ import annotations

import pytest

from tests.adversary.process import Gateway, head
from tests.adversary.twice import STANCES

pytestmark = STANCES

SOCKET = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.mark.parametrize("lines", [(), (b"Origin: https://evil.test",), (b"Origin: null",)])
@pytest.mark.parametrize("portal", ["customer", "employee"])
def test_socket_without_the_right_is_refused_before_anything_is_dialled(
    gateway: Gateway, portal: str, lines: tuple[bytes, ...]
) -> None:
    """W1, W2, S12: no credential, a foreign page, a foreign portal; frames sent ahead are lost."""
    line = f"GET /portal/{portal}/x HTTP/1.1".encode()
    anonymous = b"\r\n".join((line, b"Host: gateway.test", *SOCKET, *lines, b"", b""))
    ahead = b"\x81\x85\x00\x00\x00\x00hello"
    for raw in (anonymous, head(gateway, line, *SOCKET, *lines, who="partner")):
        (reply,) = gateway.replies(raw + ahead)
        assert reply.status in {400, 401, 403, 501}
    assert gateway.arrived == []


@pytest.mark.parametrize("listener", ["data", "second"])
@pytest.mark.parametrize(
    ("line", "lines"),
    [
        (b"POST /portal/customer/x HTTP/1.1", (b"Content-Length: 2",)),
        (b"GET /portal/customer/x HTTP/1.1", (b"Content-Length: 2",)),
        (b"GET /portal/customer/x HTTP/1.1", (b"Transfer-Encoding: chunked",)),
        (b"PUT /portal/customer/x HTTP/1.1", (b"Content-Length: 0",)),
    ],
)
def test_handshake_with_a_body_is_none(
    gateway: Gateway, listener: str, line: bytes, lines: tuple[bytes, ...]
) -> None:
    """W3: refused at once, no hang, no 101."""
    (reply,) = gateway.replies(head(gateway, line, *SOCKET, *lines) + b"ab", listener=listener)
    assert reply.status in {400, 405, 501}
    assert gateway.arrived == []


def test_handshake_by_another_method_is_none(gateway: Gateway) -> None:
    """W3: a POST opens no socket."""
    (reply,) = gateway.replies(head(gateway, b"POST /portal/customer/x HTTP/1.1", *SOCKET))
    assert reply.status in {400, 405, 501}
    assert gateway.arrived == []


@pytest.mark.parametrize("portal", ["customer", "partner", "employee"])
@pytest.mark.parametrize("who", ["customer", "partner", "employee", "agent", ""])
def test_head_is_decided_as_get_is(gateway: Gateway, who: str, portal: str) -> None:
    """W4: the same status, the same portal, no body."""
    statuses = [gateway.ask(one, f"/portal/{portal}/x", who=who).status for one in ("GET", "HEAD")]
    assert statuses[0] == statuses[1]
    expected = 2 if statuses[0] == 200 else 0
    assert [seen.method for seen in gateway.arrived] == ["GET", "HEAD"][:expected]


@pytest.mark.parametrize("listener", ["data", "second"])
@pytest.mark.parametrize(
    "method", [b"TRACE", b"get", b"Get", b"FOOBAR", b"PROPFIND", b"M-SEARCH", b"PRI", b"SOURCE"]
)
def test_method_that_nobody_listed_is_refused(
    gateway: Gateway, listener: str, method: bytes
) -> None:
    """W4: a closed list, case-sensitive; nothing is reflected."""
    secret = b"X-Secret: do-not-reflect"
    raw = gateway.raw(
        head(gateway, method + b" /portal/customer/x HTTP/1.1", secret), listener=listener
    )
    assert raw.startswith((b"HTTP/1.1 400", b"HTTP/1.1 405"))
    assert b"do-not-reflect" not in raw
    assert gateway.arrived == []


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_known_method_without_a_row_is_refused_with_those_that_have_one(
    gateway: Gateway, method: str
) -> None:
    """W4: 405 and `Allow`."""
    reply = gateway.ask(method, "/portal/customer/x", who="customer")
    assert (reply.status, reply.header("allow")) == (405, "GET, HEAD, POST")
    assert gateway.arrived == []


@pytest.mark.parametrize("target", ["/portal/customer/x", "/portal/employee/x", "/v1/retrieve"])
def test_preflight_reaches_no_upstream(gateway: Gateway, target: str) -> None:
    """W6: answered here, refused as any method without a row, no origin is allowed anything."""
    headers = [
        ("Origin", "https://evil.test"),
        ("Access-Control-Request-Method", "DELETE"),
        ("Access-Control-Request-Headers", "authorization, x-gateway-audience"),
    ]
    for who in ("", "employee"):
        reply = gateway.ask("OPTIONS", target, who=who, headers=headers)
        assert reply.status == 405
        assert not [name for name, _ in reply.headers if name.startswith("access-control-")]
    assert gateway.arrived == []
