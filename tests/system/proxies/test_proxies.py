"""The gateway's decision through each real proxy with the configuration that ships for it.

Provenance: attack log rows A1-A17, B1-B12 and "Forward-auth dialects"; library survey section 5.
"""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.gateway.forward_auth.asking import WORDS
from tests.gateway.stage import GATEWAY_ID, Reply
from tests.ports import free_port
from tests.system.proxies.conftest import Front
from tests.system.proxies.kinds import KINDS, proxying
from tests.system.proxies.recorder import Recorder, one_reading

OWN = "/portal/partner/home"
IDENTITY = ("subject", "audience", "profile", "assertion", "delegation")


def bearer(front: Front, audience: str) -> str:
    return f"Authorization: Bearer {front.stage.issuers.token(audience)}"


def refused(front: Front, reply: Reply) -> bool:
    """Not let through, whatever the proxy makes of it, and nothing arrived."""
    return (reply.status == 0 or reply.status >= 400) and not front.arrived


def test_allowed_request_arrives_as_sent_with_a_signed_identity(front: Front) -> None:
    """Chosen by us: what the relay would add is what a proxy adds; the credential stays here."""
    reply = front.get(f"{OWN}?q=a%20b&r=..", bearer(front, "partner"))
    assert (reply.status, reply.body) == (200, b"ok")
    (got,) = front.arrived
    assert (got.method, got.target) == ("GET", f"{OWN}?q=a%20b&r=..")
    assert got.one("x-gateway-audience") == got.one("x-gateway-profile") == "partner"
    assert got.one("x-gateway-subject").startswith("s-") or got.one("x-gateway-subject")
    assert not got.all("authorization")
    assert got.one("host") == "portal.test"
    keys = ECKey.import_key(json.loads(front.stage.keys.jwks())["keys"][0])
    token = jwt.decode(got.one("x-gateway-assertion"), keys, algorithms=["ES256"])
    assert token.header["typ"] == "gateway-assertion+jwt"
    assert token.claims["iss"] == GATEWAY_ID
    assert token.claims["aud"] == "urn:portal:partner"
    assert (token.claims["htm"], token.claims["htu"]) == ("GET", OWN)
    assert token.claims["sub"] == got.one("x-gateway-subject")
    assert token.claims["rid"] == got.one("x-request-id")


@pytest.mark.parametrize("path", ["/portal/partner/", "/portal/partner/x/"])
def test_index_is_decided_and_arrives_as_it_was_asked_for(front: Front, path: str) -> None:
    """Attack log A12: a slash at the end is another path, for the decision and for the portal."""
    reply = front.get(f"{path}?q=1", bearer(front, "partner"))
    assert reply.status == 200
    (got,) = front.arrived
    assert got.target == f"{path}?q=1"
    payload = got.one("x-gateway-assertion").split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(payload + "=="))["htu"] == path
    front.recorder.reset()
    for lines in ((), (bearer(front, "customer"),)):
        assert refused(front, front.get(path, *lines))
    for other in (path.rstrip("/") + "//", "/portal/partner", "/v1/retrieve/"):
        assert refused(front, front.get(other, bearer(front, "partner")))


def test_answers_may_not_be_kept_for_somebody_else(front: Front) -> None:
    """Attack log, header rules: private and varying, whatever the portal said."""
    reply = front.get(OWN, bearer(front, "partner"))
    assert reply.header("cache-control") == "private, no-store"
    assert reply.header("vary") == "Authorization, Cookie"


def test_decision_is_recorded_like_any_other(front: Front) -> None:
    """The issue: a decision for a proxy has its record; the surface tells it apart."""
    front.get(OWN, bearer(front, "partner"))
    (record,) = front.stage.records.all
    assert (record.surface, record.route, record.decision) == (
        "forward_auth",
        "portal-partner",
        "allow",
    )
    assert (record.audience, record.status) == ("partner", 200)
    assert record.peer == front.arrived[0].one("x-forwarded-for")
    assert [one.station for one in record.stations] == [
        "admit", "match", "identify", "place", "decide",
    ]  # fmt: skip


def test_without_a_credential_nothing_arrives(front: Front) -> None:
    """401 with a challenge, which every proxy hands on."""
    reply = front.get(OWN)
    assert reply.status == 401
    assert refused(front, reply)
    assert "Bearer" in (reply.header("www-authenticate") or "")


def test_visitor_is_let_in_only_where_the_policy_says_so(front: Front) -> None:
    """routes.yaml: the customers' portal is open to visitors; their identity is a named one."""
    assert front.get("/portal/customer/home").status == 200
    (got,) = front.arrived
    assert got.one("x-gateway-audience") == "customer"
    assert got.one("x-gateway-subject") == "anonymous"
    assert got.one("x-gateway-delegation") == ""


@pytest.mark.parametrize("audience", ["customer", "employee", "agent"])
def test_other_audiences_are_denied(front: Front, audience: str) -> None:
    """routes.csv: partners only."""
    reply = front.get(OWN, bearer(front, audience))
    assert reply.status == 403
    assert refused(front, reply)


def test_damaged_credential_is_no_visitor(front: Front) -> None:
    """Attack log O12: invalid never falls back to anonymous."""
    for line in ("Authorization: Bearer x.y.z", "Authorization: Basic eDp5", "Authorization: "):
        reply = front.get("/portal/customer/home", line)
        if line == "Authorization: " and reply.status == 200:
            continue  # a proxy may drop an empty header: then there is no credential
        assert reply.status == 401, line
        assert not front.arrived


@pytest.mark.parametrize("path", ["/v1/retrieve", "/v1/scope", "/v1/units/law/a", "/-/authz/nginx"])
def test_guarded_and_reserved_paths_are_not_decided_for_a_proxy(front: Front, path: str) -> None:
    """The issue: what has to be inspected is never decided beside the gateway."""
    reply = front.get(path, bearer(front, "partner"))
    assert reply.status in {403, 404, 405}
    assert refused(front, reply)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"])
def test_methods_that_a_route_does_not_list_are_refused(front: Front, method: str) -> None:
    """A preflight is no exception: routes.yaml lists GET, HEAD and POST."""
    lines = ("Origin: https://evil.example", "Access-Control-Request-Method: GET")
    reply = front.get(OWN, bearer(front, "partner"), *lines, method=method)
    assert refused(front, reply)


def test_head_and_post_are_decided_as_what_they_are(front: Front) -> None:
    """HEAD is decided as GET and signed as HEAD; a body passes the proxy, never the decision."""
    assert front.get(OWN, bearer(front, "partner"), method="HEAD").status == 200
    body = b"x" * 100_000
    lines = (bearer(front, "partner"), f"Content-Length: {len(body)}")
    assert front.get(OWN, *lines, method="POST", body=body).status == 200
    head, post = front.arrived
    assert (head.method, post.method, post.body) == ("HEAD", "POST", body)
    payload = head.one("x-gateway-assertion").split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(payload + "=="))["htm"] == "HEAD"
    assert [one.bytes_in for one in front.stage.records.all] == [0, 0]


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Transfer-Encoding: chunked"], b"5\r\nhello\r\n0\r\n\r\n"),
        (["Content-Length: 5", "Expect: 100-continue"], b"hello"),
    ],
)
def test_framing_of_a_body_concerns_no_decision(
    front: Front, lines: list[str], body: bytes
) -> None:
    """A question has no body, whatever the request's own framing is."""
    reply = front.get(OWN, bearer(front, "partner"), *lines, method="POST", body=body)
    assert reply.status == 200
    assert front.arrived[0].body == b"hello"
    denied = front.get(OWN, bearer(front, "customer"), *lines, method="POST", body=body)
    assert denied.status == 403
    assert len(front.arrived) == 1


def test_two_callers_on_one_connection_are_decided_apart(front: Front) -> None:
    """A kept connection carries no decision over to its next request."""
    one = f"GET {OWN} HTTP/1.1\r\nHost: portal.test\r\n{bearer(front, 'partner')}\r\n\r\n"
    two = f"GET {OWN} HTTP/1.1\r\nHost: portal.test\r\n{bearer(front, 'customer')}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", front.port), 10) as sock:
        stream = sock.makefile("rb")
        statuses = []
        for request in (one, two, one):
            sock.sendall(request.encode())
            statuses.append(int(stream.readline().split()[1]))
            length = 0
            while (line := stream.readline().lower()) != b"\r\n":
                length = int(line[15:]) if line.startswith(b"content-length:") else length
                assert b"chunked" not in line or statuses[-1] == 403
                if b"chunked" in line:
                    length = -1
            if length < 0:
                while size := int(stream.readline(), 16):
                    stream.read(size + 2)
                stream.readline()
            else:
                stream.read(length)
    assert statuses == [200, 403, 200]
    assert len(front.arrived) == 2


SPOOFS = [
    spelt
    for name in IDENTITY
    for spelt in (
        f"X-Gateway-{name.title()}: forged",
        f"x-gateway-{name}: forged",
        f"X_Gateway_{name.title()}: forged",
        f"X-Gateway_{name.title()}: forged",
        f"X.Gateway.{name.title()}: forged",
    )
]


def _values(front: Front) -> list[str]:
    return [value for got in front.arrived for _, value in got.headers]


@pytest.mark.parametrize("line", SPOOFS)
def test_forged_identity_does_not_arrive(front: Front, line: str) -> None:
    """Attack log B1, B3, B6: in any spelling, once and twice, it is dropped or refused."""
    for lines in ((line,), (line, line)):
        front.recorder.reset()
        reply = front.get(OWN, bearer(front, "partner"), *lines)
        assert "forged" not in _values(front)
        if reply.status == 200:
            (got,) = front.arrived
            assert got.one("x-gateway-audience") == "partner"
        else:
            assert refused(front, reply)


def test_forged_identity_of_a_visitor_does_not_arrive_either(front: Front) -> None:
    """Attack log B3: what the decision has nothing to say about, a client says nothing about."""
    reply = front.get("/portal/customer/home", *[one for one in SPOOFS if "-Gateway-" in one])
    if reply.status == 200:  # where the proxy took them away; a delegation alone is refused
        (got,) = front.arrived
        assert "forged" not in _values(front)
        assert got.one("x-gateway-delegation") == ""
    else:
        assert refused(front, reply)


def test_connection_header_cannot_remove_the_identity(front: Front) -> None:
    """Attack log B5: what a client lists there is removed before ours is set."""
    listed = "Connection: close, X-Gateway-Subject, X-Gateway-Assertion, X-Forwarded-Uri"
    head = ["GET /portal/partner/home HTTP/1.1", "Host: portal.test", listed]
    raw = "\r\n".join([*head, bearer(front, "partner")]).encode() + b"\r\n\r\n"
    reply = front.ask(raw)
    if reply.status == 200:
        (got,) = front.arrived
        assert got.one("x-gateway-subject")
        assert got.one("x-gateway-assertion")
    else:
        assert refused(front, reply)


@pytest.mark.parametrize(
    "lines",
    [
        ("X-Forwarded-Uri: /portal/customer/home", "X-Forwarded-Method: GET"),
        ("X-Original-URI: /portal/customer/home", "X-Original-Method: GET"),
        ("X-Original-URL: /portal/customer/home", "X-Rewrite-URL: /portal/customer/home"),
        ("X-Ext-Authz-Path: /portal/customer/home", "X-Ext-Authz-Method: GET"),
        ("X_Forwarded_Uri: /portal/customer/home", "X_Original_URI: /portal/customer/home"),
        ("X-HTTP-Method-Override: GET", "X-Envoy-Original-Path: /portal/customer/home"),
        ("Forwarded: for=10.0.0.1;proto=https;host=portal.test", "X-Real-IP: 10.0.0.1"),
    ],
)
def test_forged_metadata_does_not_open_another_path(front: Front, lines: tuple[str, str]) -> None:
    """Attack log B9: the decision is over the path that is sent, whatever a client claims."""
    reply = front.get("/portal/employee/home", *lines)
    assert refused(front, reply)
    reply = front.get("/portal/employee/home", *lines, bearer(front, "partner"))
    assert refused(front, reply)


def test_forged_provenance_does_not_arrive(front: Front) -> None:
    """Attack log B4, B11: the family is rebuilt from the socket."""
    forged = [
        "X-Forwarded-For: 10.6.6.6", "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: gopher",
        "X-Forwarded-Prefix: /evil", "X-Forwarded-User: evil", "Forwarded: for=10.6.6.6",
        "X-Real-IP: 10.6.6.6", "X-Original-URL: /evil", "Remote-User: evil",
        "X-Remote-User: evil", "X-HTTP-Method-Override: EVIL",
    ]  # fmt: skip
    reply = front.get(OWN, bearer(front, "partner"), *forged)
    assert reply.status == 200
    told = [value for value in _values(front) if not value.startswith("ey")]
    assert not [value for value in told if "10.6.6.6" in value or "evil" in value.lower()]
    assert "gopher" not in told
    (record,) = front.stage.records.all
    # Envoy writes its machine's own address for a client on loopback
    assert record.peer == front.arrived[0].one("x-forwarded-for")


@pytest.mark.parametrize("mark", "_.!~+$&%^|#'`*")
def test_name_that_some_readers_fold_does_not_arrive(front: Front, mark: str) -> None:
    """Attack log B1; CVE-2026-88879: every mark is a `-` to readers of the CGI kind."""
    for name in ("X-Remote-User", "X-Forwarded-For", "X-Role"):
        front.recorder.reset()
        line = f"{name.replace('-', mark)}: forged"
        reply = front.get(OWN, bearer(front, "partner"), line)
        assert "forged" not in _values(front)
        assert reply.status == 200 or refused(front, reply)


@pytest.mark.parametrize("names", list(WORDS.values()), ids=str)
def test_foreign_words_of_a_client_do_no_harm(front: Front, names: tuple[str, ...]) -> None:
    """They are taken off, or refused as the caller's own fault: no proxy seems broken by them."""
    lines = [f"{name}: forged" for name in names]
    reply = front.get(OWN, bearer(front, "partner"), *lines)
    assert reply.status < 500
    assert "forged" not in _values(front)


PATHS = [
    "/portal/customer/../employee/x", "/portal/customer/%2e%2e/employee/x", "//portal/employee/x",
    "/portal//employee/x", "/portal/customer/..;v=1/employee", "/portal/customer;a/x",
    "/portal/customer/%2fx", "/portal/customer%2Fx", "/portal/customer/%5c..%5cemployee",
    "/portal/customer\\..\\employee", "/portal/customer/%00", "/portal/customer/%3bx",
    "/portal/customer/%25", "/portal/customer/%3f", "/portal/customer%3F/../employee",
    "/portal/customer/%23", "/portal/customer/x#/portal/employee", "/portal/customer/%252e%252e/x",
    "/PORTAL/customer/x", "/portal/Customer/x", "/portal/customer.", "/portal/customer%20/x",
    "/portal/customer/x/", "/portal/customer/x//", "/portal/customer/", "/portal//",
    "/portal/customer/%ff", "/portal/customer/%c0%ae", "/portal/customer/é",
    "/portal/customer/./x", "/portal/./customer/x", "/%70ortal/customer/x", "/portal/customer/%41",
    "http://evil.example/portal/employee/x", "*", "portal/customer/x", "/portal/customer/x\ty",
    "/portal/employee/x?/portal/customer/x", "/portal/customer/...", "?/portal/customer/x", "",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_path_with_two_readings_does_not_pass(front: Front, path: str) -> None:
    """Attack log A1-A17, as a visitor of the customers' portal: refused, or sent as decided."""
    reply = front.ask(
        f"GET {path} HTTP/1.1\r\nHost: portal.test\r\nConnection: close\r\n\r\n".encode("latin-1")
    )
    for got in front.arrived:
        assert one_reading(got).startswith("/portal/customer/")
    if not front.arrived:
        assert refused(front, reply) or reply.status in {301, 307, 308}


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /portal/customer/x HTTP/1.1\r\n\r\n",
        b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /portal/customer/x HTTP/1.1\r\nHost: a/b@c\r\n\r\n",
        b"GET /portal/customer/x HTTP/1.1\r\nHost: a?x\r\n\r\n",
        b"GET /portal/customer/x HTTP/1.1\r\nHost: \r\n\r\n",
    ],
)
def test_host_is_exactly_one_valid_name(front: Front, raw: bytes) -> None:
    """Attack log A15, B13."""
    assert refused(front, front.ask(raw.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))


HANDSHAKE = (
    "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip


def _handshake(front: Front, *lines: str, portal: str = "partner", key: bool = True) -> bytes:
    head = [f"GET /portal/{portal}/socket HTTP/1.1", "Host: portal.test", "Connection: Upgrade"]
    shaken = HANDSHAKE if key else HANDSHAKE[:1]
    return "\r\n".join([*head, *shaken, *lines]).encode() + b"\r\n\r\n"


@pytest.mark.parametrize("origin", ["https://portal.example", ""])
def test_websocket_is_decided_at_its_handshake(front: Front, origin: str) -> None:
    """traefik#3039, caddy#5430: an upgrade survives the decision, and frames pass both ways."""
    lines = [bearer(front, "partner"), "X-Gateway-Profile: forged"]
    lines += [f"Origin: {origin}"] if origin else []
    with socket.create_connection(("127.0.0.1", front.port), 10) as sock:
        sock.sendall(_handshake(front, *lines))
        stream = sock.makefile("rb")
        assert stream.readline().split()[1] == b"101"
        while stream.readline() != b"\r\n":
            pass
        text = b"hello"
        sock.sendall(bytes([0x81, 0x80 | len(text)]) + b"\0\0\0\0" + text)
        assert stream.read(2 + len(text)) == bytes([0x81, len(text)]) + text
    (got,) = front.arrived
    assert got.one("x-gateway-audience") == "partner"
    assert "forged" not in _values(front)
    assert front.recorder.echoed == [text]


@pytest.mark.parametrize("audience", ["", "employee"])
def test_websocket_of_a_denied_caller_never_opens(front: Front, audience: str) -> None:
    """A handshake is a request like any other."""
    lines = (bearer(front, audience),) if audience else ()
    reply = front.ask(_handshake(front, *lines))
    assert reply.status == (403 if audience else 401)
    assert not front.arrived


@pytest.mark.parametrize(
    ("portal", "lines"),
    [
        ("partner", ["Origin: https://evil.example"]),
        ("partner", ["Origin: https://portal.example.evil.example"]),
        ("partner", ["Origin: null"]),
        ("partner", ["Origin: absent"]),
        ("partner", ["Sec-Fetch-Mode: websocket"]),
        ("partner", ["Origin: https://portal.example", "Origin: https://evil.example"]),
        ("customer", ["Origin: https://portal.example"]),
        ("customer", []),
    ],
)
def test_websocket_opens_only_for_the_origins_of_its_route(
    front: Front, portal: str, lines: list[str]
) -> None:
    """routes.yaml, `origins`: by the same list as the gateway's own sockets."""
    reply = front.ask(_handshake(front, bearer(front, portal), *lines, portal=portal))
    assert reply.status in {400, 403}
    assert not front.arrived


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "WebSocket, h2c", "tls/1.0"])
def test_nothing_is_upgraded_that_the_decision_could_not_know(front: Front, upgrade: str) -> None:
    """Attack log S13: without a handshake's key it is a plain request, or none."""
    raw = _handshake(front, bearer(front, "partner"), key=False)
    reply = front.ask(raw.replace(b": websocket", b": " + upgrade.encode()))
    assert reply.status != 101
    for got in front.arrived:
        assert not got.all("upgrade")
        assert "upgrade" not in got.one("connection").lower()


@pytest.mark.parametrize("kind", list(KINDS))
def test_nothing_passes_while_the_decision_cannot_be_had(
    kind: str, recorder: Recorder, tmp_path: Path, deciding: object
) -> None:
    """Library survey section 5: all four fail closed, a visitor's page included."""
    recorder.reset()
    with proxying(KINDS[kind], tmp_path, gateway=free_port(), upstream=recorder.port) as port:
        from tests.system.proxies.client import exchange

        raw = (
            b"GET /portal/customer/home HTTP/1.1\r\nHost: portal.test\r\nConnection: close\r\n\r\n"
        )
        assert exchange(port, raw).status >= 500
    assert recorder.arrived == []
