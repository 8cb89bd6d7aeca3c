"""The stations of a request, its only control flow, each with a type of its own.

    admit -> match -> identify -> place -> decide -> relay -> inspect -> record

Each station takes the frozen type of the one before and gives its own, so none can be left
out: only *Inspected* can be written to a caller, and only `inspect` makes one. That station stands
in `inspection.py`, *record* in `visit.py`, the others here.

Source: architecture section 4; attack log section 4 ("Request pipeline").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway import placement
from gateway.authn import delegation
from gateway.authn.bearer import Authenticator, bearer_of, unauthenticated
from gateway.authn.claims import subject_id
from gateway.authn.own_keys import OwnKeys
from gateway.errors import Code, Headers, Refusal, no_credential
from gateway.ingress.body import Body
from gateway.ingress.normalise import origin_form, segments_of, valid_host
from gateway.ingress.provenance import trusted_peer
from gateway.reasons import Why
from gateway.relay.hop import Hop, Passage
from gateway.relay.upstream import UpstreamError, UpstreamResponse
from gateway.routes import match as routes
from gateway.routes import wishes
from gateway.routes.wishes import Wish
from gateway.telemetry.trace import TraceContext
from policies.bindings import Route, RouteMode, TrustedPeer, Upstream
from policies.decision import Decision
from policies.snapshot import Snapshot
from policies.subject import Principal, Subject

if TYPE_CHECKING:
    from gateway.fastpath.begun import Begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A request with one reading. ``raw_path`` is what is routed, decided, logged, sent on."""

    method: str
    raw_path: bytes
    segments: tuple[str, ...]
    query: bytes
    headers: Headers
    host: bytes
    client: str
    scheme: str
    request_id: str
    trace: TraceContext
    ends_at: float


@dataclass(frozen=True, slots=True)
class Matched:
    """A request on a route of one snapshot, which is pinned from here on."""

    admitted: Admitted
    snapshot: Snapshot
    route: Route
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Identified:
    """Who asks (None = without a credential), and the upstream that acts for it, if one does."""

    matched: Matched
    principal: Principal | None
    actor: Upstream | None


@dataclass(frozen=True, slots=True)
class Placed:
    """The caller as policy sees it, for this route and these wishes."""

    identified: Identified
    wish: Wish
    subject: Subject


@dataclass(frozen=True, slots=True)
class Granted:
    """The route is allowed to this subject."""

    placed: Placed
    decision: Decision


@dataclass(frozen=True, slots=True)
class Relayed:
    """An upstream's answer, not inspected yet."""

    granted: Granted
    response: UpstreamResponse


def admit(
    scope: Mapping[str, Any], *, request_id: str, trace: TraceContext, ends_at: float
) -> Admitted:
    """The request in its one canonical form.

    Raises: Refusal ``bad_path``, ``bad_host``, ``bad_query`` or ``bad_request``.
    """
    headers: Headers = tuple(scope["headers"])  # of a tuple: the same one
    names = b"".join([name for name, _ in headers])
    if names != names.lower():
        raise Refusal(Code.BAD_REQUEST, "the server left a header name unfolded")
    raw_path = bytes(scope.get("raw_path") or b"")
    query = bytes(scope["query_string"])
    if not origin_form(raw_path + (b"?" + query if query else b"")):
        raise Refusal(Code.BAD_PATH, "not origin-form")
    hosts = [value.strip() for name, value in headers if name == b"host"]
    if len(hosts) != 1 or not valid_host(hosts[0]):
        raise Refusal(Code.BAD_HOST, "not one valid host")
    wishes.refuse_tokens(query)
    client = scope.get("client")
    return Admitted(
        method=scope["method"],
        raw_path=raw_path,
        segments=segments_of(raw_path),
        query=query,
        headers=headers,
        host=hosts[0],
        client=client[0] if client else "",
        scheme=scope.get("scheme", "http"),
        request_id=request_id,
        trace=trace,
        ends_at=ends_at,
    )


def match(admitted: Admitted, snapshot: Snapshot) -> Matched:
    """The request on its route. Raises: Refusal ``not_found``, ``method_not_allowed``."""
    among = snapshot.routes_for(admitted.segments)
    route, names = routes.find(among, admitted.segments, admitted.method)
    return Matched(admitted, snapshot, route, names)


def may_open(matched: Matched) -> None:
    """Whether a WebSocket may be opened here by the page, or the client, that asks.

    Browsers name the page that asks; a client that names none and yet says what only browsers
    say (Fetch Metadata) is one whose Origin was taken away.

    Raises: Refusal ``upgrade_unsupported`` (nobody may), ``forbidden``.
    """
    if matched.route.mode is not RouteMode.OPAQUE or not matched.route.origins:
        raise Refusal(Code.UPGRADE_UNSUPPORTED, "this route opens no socket")
    headers = matched.admitted.headers
    origins = [value for name, value in headers if name == b"origin"]
    if len(origins) > 1:
        raise Refusal(Code.FORBIDDEN, "two origins", why=Why.WRONG_ORIGIN)
    if not origins and any(name.startswith(b"sec-fetch-") for name, _ in headers):
        raise Refusal(Code.FORBIDDEN, "a browser without an origin", why=Why.WRONG_ORIGIN)
    if not matched.route.opens_socket(origins[0].decode("latin-1") if origins else None):
        raise Refusal(
            Code.FORBIDDEN,
            "an origin that the route does not list",
            why=Why.WRONG_ORIGIN,
        )


async def identify(
    matched: Matched, authenticator: Authenticator, keys: OwnKeys, *, gateway_id: str
) -> Identified:
    """Who asks. Raises: Refusal ``unauthenticated``, ``delegation_required``, ``forbidden``."""
    headers, snapshot = matched.admitted.headers, matched.snapshot
    token = bearer_of(headers)
    delegated = delegation.delegation_of(headers)
    if token is None:
        if delegated is not None:
            raise unauthenticated(Why.DELEGATION_ALONE)
        return Identified(matched, None, None)
    sender = await authenticator.principal(token, issuers=snapshot.issuers, digest=snapshot.digest)
    upstreams = upstreams_of(sender, snapshot)
    if delegated is None:
        if upstreams and matched.route.mode is not RouteMode.OPAQUE:
            raise Refusal(
                Code.DELEGATION_REQUIRED,
                "an upstream as itself",
                why=Why.DELEGATION_REQUIRED,
                issuer=sender.issuer,
            )
        return Identified(matched, sender, None)
    if matched.route.mode is not RouteMode.GUARD:
        raise Refusal(
            Code.FORBIDDEN,
            "a delegation retrieves, nothing else",
            why=Why.DELEGATION_ELSEWHERE,
            issuer=sender.issuer,
        )
    try:
        caller, name = delegation.accept(delegated, keys, gateway_id=gateway_id, now=time.time())
    except Refusal as refusal:
        refusal.issuer = sender.issuer
        raise
    authenticator.refuse_revoked(caller)
    actor = upstreams.get(name)
    if actor is None or not actor.may_retrieve:
        raise unauthenticated(Why.FOREIGN_DELEGATION, issuer=sender.issuer)
    return Identified(matched, caller, actor)


def upstreams_of(sender: Principal, snapshot: Snapshot) -> Mapping[str, Upstream]:
    """The upstreams whose credential this principal is, by name."""
    found: dict[str, Upstream] = {}
    for name, upstream in snapshot.upstreams.items():
        alias, sub = upstream.credential
        if sender.issuer != alias:
            continue
        url = next((one.url for one in snapshot.issuers if one.alias == alias), None)
        if url is not None and sender.subject_id == subject_id(url, sub):
            found[name] = upstream
    return found


async def wish_of(identified: Identified, body: Body) -> Wish:
    """What is asked for; the body is read only now, when it is known who sends it."""
    matched = identified.matched
    admitted, route = matched.admitted, matched.route
    if route.mode is not RouteMode.GUARD:
        return Wish()
    if identified.principal is None and not route.anonymous:
        raise no_credential()
    if route.operation in wishes.BODIES:
        wishes.refuse_query(admitted.query)
        return wishes.of_body(admitted.headers, await body.whole(), route.operation)
    if await body.whole():
        raise Refusal(Code.BAD_BODY, "this route takes no body")
    if route.operation == "units":
        return wishes.of_listing(admitted.query)
    return wishes.of_query(admitted.query)


def place(identified: Identified, wish: Wish, decided: Callable[[Decision], None]) -> Placed:
    """The caller as policy sees it; ``decided`` is told what the policy says on the way.

    Raises: Refusal, see `placement.place`.
    """
    matched = identified.matched
    subject = placement.place(
        matched.snapshot,
        matched.route,
        matched.admitted.method,
        principal=identified.principal,
        actor=identified.actor,
        wish=wish,
        decided=decided,
    )
    return Placed(identified, wish, subject)


def decide(placed: Placed, decided: Callable[[Decision], None]) -> Granted:
    """Whether this subject may use this route; ``decided`` is told.

    Raises: Refusal ``forbidden``.
    """
    matched = placed.identified.matched
    decision = matched.snapshot.decide_route(
        placed.subject.audience, matched.route.id, matched.admitted.method
    )
    decided(decision)
    if not decision.allowed:
        raise placement.denied(Code.FORBIDDEN, decision)
    return Granted(placed, decision)


async def relay(granted: Granted, hop: Hop, body: Body, begun: Begun | None = None) -> Relayed:
    """The upstream's answer to an allowed request, which may have been asked for already.

    Raises: Refusal; CallerGone.
    """
    loan = begun.loan_for(granted) if begun is not None else None
    passage = passage_of(granted)
    try:
        return Relayed(granted, await hop.send(passage, body, now=time.time(), loan=loan))
    except UpstreamError as error:
        raise Refusal(error.code, str(error)) from error


def passage_of(granted: Granted) -> Passage:
    """An allowed request as the hop sends it on."""
    identified = granted.placed.identified
    matched = identified.matched
    admitted, snapshot = matched.admitted, matched.snapshot
    return Passage(
        method=admitted.method,
        raw_path=admitted.raw_path,
        query=admitted.query,
        client_headers=admitted.headers,
        client=admitted.client,
        scheme=admitted.scheme,
        host=admitted.host,
        mode=matched.route.mode,
        upstream=snapshot.upstreams[matched.route.upstream],
        subject=granted.placed.subject,
        caller=identified.principal,
        request_id=admitted.request_id,
        traceparent=admitted.trace.traceparent(),
        trusted_peer=peer_of(admitted, snapshot),
    )


def peer_of(admitted: Admitted, snapshot: Snapshot) -> TrustedPeer | None:
    """The trusted proxy that sent this request, if one did."""
    return trusted_peer(admitted.client, snapshot.trusted_peers)
