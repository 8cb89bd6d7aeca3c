"""Which headers cross, and that none of a client's can speak for the gateway.

Provenance: attack log section 3.2 (B1-B17), 3.6 W5, 3.7 F4-F6, section 4 "Header rules".
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.authn.jws import claims_of, read, verify
from gateway.authn.own_keys import OwnKeys
from tests.gateway.stage import GATEWAY_ID, Stage, parse

PATH = "/portal/customer/x"


def seen(stage: Stage, index: int = -1) -> list[tuple[str, str]]:
    """The headers of a recorded request, names lower-case."""
    head = stage.upstream.requests[index].partition(b"\r\n\r\n")[0].decode("latin-1")
    pairs = (line.partition(":") for line in head.split("\r\n")[1:])
    return [(name.lower(), value.strip()) for name, _, value in pairs]


SPOOFS = [
    ("X_Forwarded_User", "admin"),
    ("X.Gateway.Subject", "admin"),
    ("X!Remote!User", "admin"),
    ("X-Forwarded-User", "admin"),
    ("X-Forwarded-Prefix", "/admin"),
    ("X-Forwarded-For", "junk"),
    ("X-Forwarded-Proto", "https"),
    ("Forwarded", "for=1.2.3.4"),
    ("X-Real-IP", "1.2.3.4"),
    ("X-Original-URL", "/portal/employee/x"),
    ("X-Rewrite-URL", "/portal/employee/x"),
    ("X-Envoy-Original-Path", "/x"),
    ("X-User", "admin"),
    ("X-Role", "admin"),
    ("X-Auth-Audience", "employee"),
    ("Remote-User", "admin"),
    ("Impersonate-User", "admin"),
    ("Api-Key", "secret"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Gateway-Audience", "employee"),
    ("X-Gateway-Subject", "s.admin"),
    ("X-Gateway-Assertion", "forged"),
    ("X-Request-Id", "forged"),
    ("Proxy-Authorization", "Basic eA=="),
    ("Traceparent", "00-11111111111111111111111111111111-1111111111111111-01"),
    ("X-Middleware-Subrequest", "middleware"),
    ("X-Authenticated-Email", "admin"),
    ("X-User-Groups", "admin"),
    ("X-Tenant-Id", "other"),
    ("Tailscale-User-Login", "admin"),
    ("OIDC-Claim-Sub", "admin"),
    ("Client-Cert", ":AA==:"),
    ("CF-Connecting-IP", "1.2.3.4"),
    ("Fly-Client-IP", "1.2.3.4"),
    ("Private-Token", "secret"),
    ("X-Access-Token", "secret"),
    ("X-Spiffe-Id", "spiffe://admin"),
    ("TE", "trailers"),
    ("Keep-Alive", "timeout=5"),
]


@pytest.mark.parametrize(("name", "value"), SPOOFS)
def test_client_cannot_send_what_the_gateway_says(stage: Stage, name: str, value: str) -> None:
    """B1, B3-B7, B11, B16, W5: removed first, set by us afterwards."""
    reply = stage.ask("GET", PATH, token=stage.issuers.token("customer"), headers=[(name, value)])
    assert reply.status == 200
    assert (name.lower(), value) not in seen(stage)


def test_identity_headers_are_singletons_and_ours(stage: Stage) -> None:
    """B6: two spoofed ones leave one, and it is the caller's own."""
    spoofed = [("X-Gateway-Audience", "employee"), ("x-gateway-audience", "partner")]
    stage.ask("GET", PATH, token=stage.issuers.token("customer"), headers=spoofed)
    audiences = [value for name, value in seen(stage) if name == "x-gateway-audience"]
    assert audiences == ["customer"]


def test_connection_cannot_remove_our_own_headers(stage: Stage) -> None:
    """B5: what Connection lists is the client's, and goes before ours comes."""
    listed = "X-Gateway-Audience, X-Forwarded-Host, X-Custom, close"
    stage.ask(
        "GET",
        PATH,
        token=stage.issuers.token("customer"),
        headers=[("Connection", listed), ("X-Custom", "1"), ("X-Kept", "1")],
    )
    names = [name for name, _ in seen(stage)]
    assert "x-custom" not in names
    assert {"x-gateway-audience", "x-forwarded-host", "x-kept"} <= set(names)


def test_credentials_stop_at_the_gateway_and_other_cookies_go_on(stage: Stage) -> None:
    """W11: the caller's token is never forwarded; cookies of our namespace neither."""
    token = stage.issuers.token("customer")
    cookies = "a=1; __Host-gateway-session=s; b=2; gateway_csrf=t; =gateway_csrf=t"
    stage.ask("GET", PATH, token=token, headers=[("Cookie", cookies)])
    assert token.encode() not in stage.upstream.requests[0]
    assert ("cookie", "a=1; b=2") in seen(stage)


def test_forwarded_family_is_rebuilt_from_the_socket(stage: Stage) -> None:
    """B4, B12: from the peer's address, whatever it says itself."""
    spoof = [("X-Forwarded-For", "9.9.9.9"), ("X-Forwarded-Port", "443")]
    stage.ask("GET", PATH, token=stage.issuers.token("customer"), headers=spoof)
    family = [(n, v) for n, v in seen(stage) if n.startswith("x-forwarded")]
    assert family == [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "gateway.test"),
    ]


def test_mixed_case_duplicates_both_arrive(stage: Stage) -> None:
    """B17: names fold, values are kept in order."""
    headers = [("X-A", "1"), ("x-a", "2")]
    stage.ask("GET", PATH, token=stage.issuers.token("customer"), headers=headers)
    assert [value for name, value in seen(stage) if name == "x-a"] == ["1", "2"]


def test_every_request_carries_the_whole_set_of_identity_headers(stage: Stage) -> None:
    """B3: for an anonymous caller too, so that no upstream can read a client's value."""
    spoofed = [("X-Gateway-Subject", "s.admin"), ("X-Gateway-Delegation", "x")]
    assert stage.ask("GET", PATH, headers=spoofed[:1]).status == 200
    found = dict(seen(stage))
    assert found["x-gateway-audience"] == "customer"
    assert found["x-gateway-subject"] == "anonymous"
    assert found["x-gateway-delegation"] == ""


def test_assertion_is_verified_with_the_published_keys(stage: Stage) -> None:
    """Issue part 4: ES256, a minute, bound to upstream, method, path and request."""
    reply = stage.ask("GET", PATH, token=stage.issuers.token("customer"))
    published = json.loads(stage.ask("GET", "/.well-known/jwks.json").body)["keys"]
    token = read(dict(seen(stage))["x-gateway-assertion"].encode(), {"ES256"})
    (key,) = [one for one in published if one["kid"] == token.kid]
    assert "d" not in key
    from joserfc.jwk import ECKey

    verify(token, ECKey.import_key(key))
    claims = claims_of(token)
    assert claims["aud"] == "urn:portal:customer"
    assert claims["iss"] == GATEWAY_ID
    assert (claims["htm"], claims["htu"], claims["audience"]) == ("GET", PATH, "customer")
    assert claims["rid"] == reply.header("x-request-id")
    assert claims["digest"] == stage.snapshot.digest
    assert 0 < int(str(claims["exp"])) - int(str(claims["iat"])) <= 60


def test_ring_publishes_old_keys_and_signs_with_the_newest() -> None:
    """Rotation: what the older key signed still verifies."""
    from joserfc.jwk import ECKey

    old, new = ECKey.generate_key("P-256"), ECKey.generate_key("P-256")
    pem = new.as_pem(private=True) + old.as_pem(private=True)
    ring, before = OwnKeys.from_pem(pem), OwnKeys([old])
    token = read(before.sign({"a": 1}, typ="t"), {"ES256"})
    key = ring.public(token.kid)
    assert key is not None
    verify(token, key)
    assert read(ring.sign({}, typ="t")).kid == new.thumbprint()


def test_answer_loses_what_is_for_one_hop_or_for_caches(stage: Stage) -> None:
    """F5, F6: upstream validators, Server and cookies of our namespace are removed."""
    stage.upstream.answer = (
        b'HTTP/1.1 200 OK\r\nServer: s\r\nETag: "e"\r\nLast-Modified: x\r\nX-Hop: 1\r\n'
        b"Connection: X-Hop\r\nSet-Cookie: __Host-gateway-session=evil\r\nSet-Cookie: a=b\r\n"
        b"Set-Cookie: =__Host-gateway-session=evil\r\nX-Sendfile: /etc/passwd\r\n"
        b"CDN-Cache-Control: max-age=9\r\nCloudflare-CDN-Cache-Control: max-age=9\r\n"
        b"Surrogate-Control: max-age=9\r\n"
        b"Cache-Control: public, max-age=9\r\nVary: Accept\r\nX-Request-Id: theirs\r\n"
        b"Content-Length: 2\r\n\r\nok"
    )
    reply = stage.ask("GET", PATH, token=stage.issuers.token("customer"))
    names = [name for name, _ in reply.headers]
    assert not {"server", "etag", "last-modified", "x-hop", "x-sendfile"} & set(names)
    assert [name for name in names if "control" in name] == ["cache-control"]
    assert [value for name, value in reply.headers if name == "set-cookie"] == ["a=b"]
    assert reply.header("cache-control") == "private, no-store"
    assert reply.header("vary") == "Authorization, Cookie, Accept"
    assert names.count("x-request-id") == 1
    assert reply.header("x-request-id") != "theirs"
    assert reply.header("x-policy-digest") == stage.snapshot.digest


def test_no_header_name_of_the_list_changes_a_decision(shared_data: Path, stage: Stage) -> None:
    """param-miner's names, sixty at a time: a customer stays a customer and is refused as one."""
    names = (shared_data / "http" / "header_names.txt").read_text().split()
    framing = {"host", "connection", "content-length", "transfer-encoding", "authorization"}
    framing |= {"expect", "upgrade", "x-gateway-delegation"}
    token_form = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
    names = [name for name in names if name.lower() not in framing and token_form.fullmatch(name)]
    token = stage.issuers.token("customer")
    for start in range(0, len(names), 60):
        forged = [(name, "employee") for name in names[start : start + 60]]
        assert stage.ask("GET", "/portal/employee/x", token=token, headers=forged).status == 403
        assert stage.ask("GET", PATH, token=token, headers=forged).status == 200
        assert dict(seen(stage))["x-gateway-audience"] == "customer"
    assert len(names) > 500


def test_refusals_are_problem_documents_that_tell_no_internals(stage: Stage) -> None:
    """RFC 9457, with a stable code and the request's id."""
    reply = stage.ask("GET", "/portal/employee/x", token=stage.issuers.token("customer"))
    document = json.loads(reply.body)
    assert reply.header("content-type") == "application/problem+json"
    assert set(document) == {"type", "title", "status", "code", "request_id"}
    assert (document["status"], document["code"]) == (403, "forbidden")
    assert document["request_id"] == reply.header("x-request-id")


def test_unauthenticated_answers_carry_a_challenge(stage: Stage) -> None:
    """RFC 6750 section 3: no error word when no credential was sent."""
    reply = stage.ask("GET", "/v1/scope")
    assert (reply.status, reply.header("www-authenticate")) == (
        401,
        'Bearer realm="audience-gateway"',
    )


def test_request_id_of_the_caller_is_not_taken_over(stage: Stage) -> None:
    """A caller must not choose what operators follow."""
    reply = stage.ask("GET", "/nothing", headers=[("X-Request-Id", "mine")])
    assert reply.header("x-request-id") != "mine"
    assert parse(stage.raw(b"GET / HTTP/1.1\r\n\r\n"))[0].header("x-request-id")
