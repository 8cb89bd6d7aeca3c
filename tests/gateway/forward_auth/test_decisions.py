"""The decision endpoint by itself: who may ask, what is read, what is answered.

Provenance: issue 4, item 6; attack log "Forward-auth dialects" and rows B1, B3, B6, B9, B11, O12.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.authn import delegation
from gateway.errors import Code
from gateway.relay import assertion, headers
from gateway.relay.admission import Admission, Allowance, RouteLimits
from gateway.surfaces.forward_auth.dialects import DIALECTS as READ
from gateway.surfaces.forward_auth.dialects import Misasked, read
from policies.bindings import TrustedPeer
from policies.decision import PolicyDigest
from tests.gateway.forward_auth.asking import ADDRESSES, DIALECTS, WORDS, decide, send, told
from tests.gateway.stage import Reply, Stage

OWN = "/portal/partner/home"
EVERY = (
    headers.SUBJECT, headers.AUDIENCE, headers.PROFILE, assertion.HEADER, delegation.HEADER,
    b"x-request-id", b"traceparent",
)  # fmt: skip


def code(reply: Reply) -> str:
    assert reply.header("content-type") == "application/problem+json"
    assert reply.header("cache-control") == "private, no-store"
    document = json.loads(reply.body)
    assert document["status"] == reply.status
    assert document["request_id"] == reply.header("x-request-id")
    return str(document["code"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_allow_is_a_200_without_a_body_and_with_every_identity_header(
    deciding: Stage, dialect: str
) -> None:
    """Envoy takes a 204 for a denial; a header left out would let a client's own through."""
    reply = decide(deciding, dialect, OWN, audience="partner")
    assert (reply.status, reply.body) == (200, b"")
    for name in EVERY:
        assert reply.header(name.decode()) is not None
    assert reply.header("x-gateway-audience") == "partner"
    assert deciding.upstream.requests == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_visitor_has_every_identity_header_too(deciding: Stage, dialect: str) -> None:
    """Attack log B3: empty, never absent."""
    reply = decide(deciding, dialect, "/portal/customer/home")
    assert reply.status == 200
    assert reply.header("x-gateway-delegation") == ""
    assert {name.decode() for name in EVERY} <= {name for name, _ in reply.headers}


def test_identity_is_the_relays_own(deciding: Stage) -> None:
    """The issue: the assertion as the relay makes it, so a portal verifies one thing."""
    reply = decide(deciding, "nginx", f"{OWN}?a=1", audience="partner")
    token = deciding.issuers.token("partner")
    relayed = deciding.ask("GET", f"{OWN}?a=1", token=token)
    assert relayed.status == 200
    (request,) = deciding.upstream.requests
    sent = {
        name.lower(): value
        for name, _, value in (line.partition(b": ") for line in request.split(b"\r\n")[1:])
    }
    for name in (headers.SUBJECT, headers.AUDIENCE, headers.PROFILE):
        assert (reply.header(name.decode()) or "").encode() == sent[name]
    assert {name for name in sent if name.startswith(b"x-gateway-")} == {
        name.encode() for name, _ in reply.headers if name.startswith("x-gateway-")
    }


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("source", ["stranger", "balancer", "loopback"])
def test_peer_that_is_not_believed_learns_nothing(
    deciding: Stage, dialect: str, source: str
) -> None:
    """The issue: untrusted peer 403, also one that is believed about other things."""
    address = ADDRESSES.get(source, "127.0.0.1")
    reply = decide(deciding, dialect, OWN, audience="partner", source=address)
    assert (reply.status, code(reply)) == (403, "forbidden")


@pytest.mark.parametrize("asking", ["nginx", "envoy", "traefik"])
@pytest.mark.parametrize("dialect", ["nginx", "envoy", "traefik"])
def test_proxy_cannot_ask_in_anothers_dialect(deciding: Stage, asking: str, dialect: str) -> None:
    """Attack log B9: one dialect per peer, as policy says."""
    reply = decide(deciding, dialect, OWN, audience="partner", source=ADDRESSES[asking])
    assert reply.status == (200 if asking == dialect else 403)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("how", ["absent", "empty", "twice"])
def test_missing_metadata_is_a_400(deciding: Stage, dialect: str, missing: int, how: str) -> None:
    """traefik#12418: clear, and never a guess from another header."""
    lines = told(dialect, "GET", "/portal/customer/home")
    line = lines.pop(missing)
    lines += {"absent": [], "empty": [line.partition(":")[0] + ":"], "twice": [line, line]}[how]
    reply = send(deciding, f"/-/authz/{dialect}", lines, source=ADDRESSES[dialect])
    assert (reply.status, code(reply)) == (400, "bad_request")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("other", DIALECTS)
def test_words_of_another_dialect_are_a_400(deciding: Stage, dialect: str, other: str) -> None:
    """Library survey section 5, header confusion: whoever sees both pairs has been lied to."""
    if WORDS[dialect] == WORDS[other]:
        return
    for name in WORDS[other][:2]:
        reply = decide(deciding, dialect, "/portal/customer/home", f"{name}: /x")
        assert (reply.status, code(reply)) == (400, "bad_request")


@pytest.mark.parametrize(
    "name",
    ["X_Gateway_Subject", "X.Gateway.Audience", "x-gateway_assertion", "X!Gateway!Profile",
     "X_Original_Uri", "X-Forwarded_Method", "X~Ext~Authz~Path"],
)  # fmt: skip
@pytest.mark.parametrize("dialect", DIALECTS)
def test_folded_form_of_our_names_is_refused(deciding: Stage, dialect: str, name: str) -> None:
    """Attack log B1; CVE-2026-88879: CGI-like readers fold every mark into one name."""
    reply = decide(deciding, dialect, OWN, f"{name}: forged", audience="partner")
    assert reply.status == (403 if dialect == "nginx" else 400)
    assert code(reply) == "bad_request"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("method", "path", "audience", "status", "expected"),
    [
        ("GET", OWN, "", 401, Code.UNAUTHENTICATED),
        ("GET", OWN, "customer", 403, Code.FORBIDDEN),
        ("GET", OWN, "agent", 403, Code.NO_AUDIENCE),
        ("POST", "/v1/retrieve", "partner", 403, Code.GUARD_REQUIRED),
        ("GET", "/v1/scope", "", 403, Code.GUARD_REQUIRED),
        ("GET", "/nowhere", "partner", 404, Code.NOT_FOUND),
        ("GET", "/-/authz/nginx", "partner", 404, Code.NOT_FOUND),
        ("GET", "/.well-known/jwks.json", "partner", 404, Code.NOT_FOUND),
        ("DELETE", OWN, "partner", 405, Code.METHOD_NOT_ALLOWED),
        ("OPTIONS", OWN, "partner", 405, Code.METHOD_NOT_ALLOWED),
        ("get", OWN, "partner", 405, Code.METHOD_NOT_ALLOWED),
        ("GET", "/portal/partner/../employee/x", "partner", 400, Code.BAD_PATH),
        ("GET", "/portal/partner/%2e%2e/x", "partner", 400, Code.BAD_PATH),
        ("GET", "//portal/partner/x", "partner", 400, Code.BAD_PATH),
        ("GET", "/portal/partner//", "partner", 400, Code.BAD_PATH),
        ("GET", "/portal/partner", "partner", 404, Code.NOT_FOUND),
        ("GET", "/portal/partner/", "customer", 403, Code.FORBIDDEN),
        ("GET", "/v1/scope/", "partner", 400, Code.BAD_PATH),
        ("GET", "http://evil/portal/partner/x", "partner", 400, Code.BAD_PATH),
        ("GET", "/portal/partner/x#y", "partner", 400, Code.BAD_PATH),
        ("GET", "/portal/partner/x;y", "partner", 400, Code.BAD_PATH),
        ("GET", "/portal/partner/x%23y", "partner", 400, Code.BAD_PATH),
    ],
)
def test_refusals(
    deciding: Stage,
    dialect: str,
    method: str,
    path: str,
    audience: str,
    status: int,
    expected: Code,
) -> None:
    """The issue; nginx makes a 500 of everything but 401 and 403, so it gets one of these."""
    reply = decide(deciding, dialect, path, method=method, audience=audience)
    if dialect == "nginx" and status != 401:
        status = 403
    assert (reply.status, code(reply)) == (status, expected)
    assert not [name for name, _ in reply.headers if name.startswith("x-gateway-")]
    if status == 401:
        assert reply.header("www-authenticate") == 'Bearer realm="audience-gateway"'


def test_preflight_is_a_request_like_any_other(deciding: Stage) -> None:
    """The issue: nothing is let through because it looks like CORS."""
    lines = ("Origin: https://evil.example", "Access-Control-Request-Method: GET")
    reply = decide(deciding, "caddy", "/portal/customer/home", *lines, method="OPTIONS")
    assert reply.status == 405


@pytest.mark.parametrize("host", ["a/b@c", "a b", "a?x", "", "a,b"])
def test_forwarded_host_is_one_valid_name(deciding: Stage, host: str) -> None:
    """Attack log A15, B13."""
    lines = told("traefik", "GET", "/portal/customer/home", host)
    reply = send(deciding, "/-/authz/traefik", lines, source=ADDRESSES["traefik"])
    assert reply.status == 400


@pytest.mark.parametrize("dialect", DIALECTS)
def test_handshake_needs_a_route_that_opens_sockets(deciding: Stage, dialect: str) -> None:
    """routes.yaml: without `origins` nobody opens one; no dialect makes that an error of ours."""
    line = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    reply = decide(deciding, dialect, OWN, line, audience="partner")
    assert (reply.status, code(reply)) == (403, "upgrade_unsupported")


def test_own_target_and_method_of_the_question_decide_nothing(deciding: Stage) -> None:
    """Caddy appends the client's query to the question, Envoy sends the client's method."""
    lines = told("envoy", "GET", "/portal/customer/home")
    for verb in ("GET", "POST", "DELETE", "PUT"):
        path = "/-/authz/envoy?access_token=x&path=/portal/employee/x"
        assert send(deciding, path, lines, source=ADDRESSES["envoy"], verb=verb).status == 200


def test_token_in_the_forwarded_query_is_refused(deciding: Stage) -> None:
    """Attack log J22: as on the data path."""
    reply = decide(deciding, "envoy", "/portal/customer/home?access_token=x")
    assert reply.status == 400


def test_head_is_decided_as_get_and_signed_as_head(deciding: Stage) -> None:
    """The issue: a HEAD gets what its GET would get."""
    reply = decide(deciding, "nginx", OWN, method="HEAD", audience="partner")
    assert reply.status == 200
    (record,) = deciding.records.all
    assert record.method == "GET"


def test_body_of_a_question_is_not_read(deciding: Stage) -> None:
    """The issue: no body is read; the connection that has one ends."""
    lines = [*told("nginx", "POST", "/portal/customer/home"), "Content-Length: 1000000"]
    token = deciding.issuers.token("customer")
    lines.append(f"Authorization: Bearer {token}")
    reply = send(deciding, "/-/authz/nginx", lines, source=ADDRESSES["nginx"], body=b"x" * 10)
    assert reply.status == 200
    assert reply.header("connection") == "close"
    assert deciding.records.all[0].bytes_in == 0


@pytest.mark.parametrize("path", ["/-/authz/", "/-/authz/envoy/", "/-/authz/Envoy", "/-/authz/x"])
def test_other_names_under_the_prefix_are_nothing(deciding: Stage, path: str) -> None:
    """Positive list."""
    lines = told("envoy", "GET", "/portal/customer/home")
    assert send(deciding, path, lines, source=ADDRESSES["envoy"]).status in {400, 404}


def test_record_says_what_was_decided_and_for_whom(deciding: Stage) -> None:
    """The issue: recorded like any request, with the address that the proxy saw."""
    told_from = "X-Forwarded-For: 10.1.1.1, 192.0.2.7"
    decide(deciding, "nginx", OWN, told_from, audience="partner")
    decide(deciding, "nginx", OWN, "X-Forwarded-For: junk", audience="customer")
    allowed, denied = deciding.records.all
    assert (allowed.surface, allowed.peer, allowed.decision) == (
        "forward_auth", "192.0.2.7", "allow",
    )  # fmt: skip
    assert allowed.policy_digest == denied.policy_digest == deciding.snapshot.digest
    assert (denied.peer, denied.decision, denied.code) == ("127.0.0.11", "deny", "forbidden")
    assert denied.facts.subject is not None
    assert denied.facts.decisions[-1].allowed is False
    assert denied.facts.station == "decide"


def test_visitors_of_one_site_share_an_allowance(deciding: Stage) -> None:
    """D6: a customer of a provider has 2**64 addresses of IPv6, and no allowance for each."""
    plane = deciding.keeper.plane
    route = next(one for one in deciding.snapshot.routes if one.anonymous)
    once = RouteLimits(allowance=Allowance(count=1, period_s=600, burst=1))

    async def limit(admission: Admission | None) -> None:
        plane.admit_by(admission)

    deciding.call(limit(Admission({route.id: once})))
    try:
        for address, status in (
            ("2001:db8::1", 200),
            ("2001:db8::2", 429),
            ("2001:db8:0:1::1", 200),
            ("192.0.2.1", 200),
            ("192.0.2.2", 200),
            ("::ffff:192.0.2.2", 429),
        ):
            forwarded = f"X-Forwarded-For: {address}"
            reply = decide(deciding, "traefik", "/portal/customer/home", forwarded)
            assert reply.status == status, address
    finally:
        deciding.call(limit(deciding.admission))


def test_policy_that_is_swapped_decides_at_once(deciding: Stage) -> None:
    """A decision is under the snapshot of its moment."""
    assert decide(deciding, "nginx", "/portal/customer/home").status == 200
    digest = PolicyDigest(f"sha256:{'0' * 64}")
    deciding.holder.prepare(replace(deciding.snapshot, digest=digest, trusted_peers=()))
    assert deciding.holder.advance(digest)
    try:
        assert decide(deciding, "nginx", "/portal/customer/home").status == 403
    finally:
        deciding.holder.prepare(deciding.snapshot)
        assert deciding.holder.advance(deciding.snapshot.digest)


NAMES = st.sampled_from(sorted({name.lower() for words in WORDS.values() for name in words}))
VALUES = st.sampled_from(["GET", "/portal/customer/x", "portal.test", "", "/../x", "a", "*"])
PEER = TrustedPeer("all", (), tuple(sorted({n.lower() for w in WORDS.values() for n in w})))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), st.sampled_from(sorted(READ)))
def test_reading_a_dialect_depends_on_its_own_three_names_alone(
    lines: list[tuple[str, str]], path: bytes
) -> None:
    """Law: what is read is what its own names say once; anything else is refused."""
    dialect = READ[path]
    headers = tuple((name.encode(), value.encode()) for name, value in lines)
    own = {name: [v for n, v in lines if n == name] for name in dialect.words}
    foreign = {"x-original-method", "x-original-uri", "x-forwarded-method", "x-forwarded-uri",
               "x-ext-authz-method", "x-ext-authz-path"} - dialect.words  # fmt: skip
    sound = all(len(v) == 1 and v[0] for v in own.values())
    if not sound or foreign & {name for name, _ in lines}:
        with pytest.raises(Misasked):
            read(dialect, headers, PEER)
        return
    forwarded = read(dialect, headers, PEER)
    assert forwarded.method == own[dialect.method][0]
    assert own[dialect.target][0].encode().partition(b"?")[::2] == (
        forwarded.raw_path,
        forwarded.query,
    )
    assert [v for n, v in forwarded.headers if n == b"host"] == [own[dialect.host][0].encode()]
