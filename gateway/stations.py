"""The eight stations: the only control flow of a request, each with a type of its own.

    admit -> match -> identify -> place -> decide -> relay -> inspect -> record

Each station takes the frozen type of the one before and gives its own, so none can be left
out: only *Inspected* can be written to a caller, and only `inspect` makes one.

Source: architecture section 4; attack log section 4 ("Request pipeline").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from gateway import placement
from gateway.authn import delegation
from gateway.authn.bearer import Authenticator, bearer_of, unauthenticated
from gateway.authn.claims import subject_id
from gateway.authn.own_keys import OwnKeys
from gateway.egress.findings import Occasion
from gateway.egress.guard import Guard
from gateway.egress.publication import PARTS
from gateway.egress.scope import ScopeDocuments
from gateway.egress.tally import Tally
from gateway.errors import Code, Headers, Refusal, no_credential
from gateway.ingress.body import Body
from gateway.ingress.normalise import origin_form, segments_of, valid_host
from gateway.ingress.provenance import trusted_peer
from gateway.ingress.strict_json import Json
from gateway.journal.event import SecurityEvent
from gateway.reasons import Why
from gateway.relay.headers import PRIVATE, of_upstream
from gateway.relay.hop import Hop, Passage
from gateway.relay.stream import Truncated, document_of
from gateway.relay.upstream import UpstreamError, UpstreamResponse
from gateway.routes import match as routes
from gateway.routes import wishes
from gateway.routes.wishes import Wish
from gateway.telemetry.trace import TraceContext
from policies.bindings import Route, RouteMode, TrustedPeer, Upstream
from policies.decision import Decision
from policies.snapshot import Snapshot
from policies.subject import Principal, Subject
from retrieval.contract import (
    Address,
    Answer,
    Ask,
    CheckRequest,
    FeedbackRequest,
    RetrieveRequest,
    SubjectWire,
)

if TYPE_CHECKING:
    from gateway.fastpath.begun import Begun

DEADLINE_MARGIN_MS: Final = 500
_ADDRESS: Final[TypeAdapter[str]] = TypeAdapter(Address)
_HEADERS: Final[Headers] = ((b"content-type", b"application/json"), *PRIVATE)


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


@dataclass(frozen=True, slots=True)
class Inspected:
    """What may leave: headers, and either a body or a stream of an opaque route."""

    status: int
    headers: Headers
    body: bytes
    stream: UpstreamResponse | None
    event: SecurityEvent | None


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


async def inspect_guarded(
    granted: Granted,
    guard: Guard,
    documents: ScopeDocuments,
    relayed: Callable[[Answer], None],
    tally: Tally,
) -> Inspected:
    """Relay and inspect in one for retrieval, which may have to be asked a second time.

    ``relayed`` is told of each answer before it is inspected, ``tally`` of its units.

    Raises: Refusal; PolicyMoved when the request must be placed anew.
    """
    placed = granted.placed
    matched = placed.identified.matched
    if matched.route.operation == "scope":
        await guard.in_force(placed.subject)
        document = await documents.document(
            matched.snapshot, placed.identified.principal, placed.subject
        )
        return Inspected(200, _HEADERS, document, None, None)
    passed = await guard.answer(
        ask_of(granted), placed.subject, _occasion(matched, tally), relayed, placed.wish.cursor
    )
    return Inspected(200, _HEADERS, passed.body, None, passed.event)


async def inspect_opaque(relayed: Relayed) -> Inspected:
    """The answer of a route that carries no governed units: its headers are checked."""
    response = relayed.response
    admitted = relayed.granted.placed.identified.matched.admitted
    try:
        headers = of_upstream(response.headers, status=response.status, method=admitted.method)
    except UpstreamError as error:
        await response.aclose()
        raise Refusal(error.code, str(error)) from error
    return Inspected(response.status, tuple(headers), b"", response, None)


async def json_of(relayed: Relayed) -> Json:
    """The JSON of an upstream, read in full.

    Raises: Refusal ``upstream_invalid`` for anything that is not strict JSON in a 200.
    """
    try:
        return await document_of(relayed.response)
    except (UpstreamError, Truncated) as error:
        raise Refusal(Code.UPSTREAM_INVALID, str(error)) from error


async def inspect_json(granted: Granted, document: Json, guard: Guard, tally: Tally) -> Inspected:
    """The JSON of an upstream, less what this subject may not see.

    Nothing of the upstream's headers leaves, and nothing of its error bodies.

    Raises: Refusal; PolicyMoved when the request must be placed anew.
    """
    placed = granted.placed
    matched = placed.identified.matched
    upstream = matched.snapshot.upstreams[matched.route.upstream]
    if upstream.facets is None:
        raise Refusal(Code.UPSTREAM_INVALID, "no facet map for a guarded upstream")
    passed = await guard.filtered(
        document,
        labels=upstream.facets,
        upstream=upstream.name,
        vocabulary=matched.snapshot.vocabulary,
        subject=placed.subject,
        occasion=_occasion(matched, tally),
    )
    return Inspected(200, _HEADERS, passed.body, None, passed.event)


def _occasion(matched: Matched, tally: Tally) -> Occasion:
    return Occasion(
        request_id=matched.admitted.request_id,
        trace_id=matched.admitted.trace.trace_hex,
        route=matched.route.id,
        tally=tally,
    )


def ask_of(granted: Granted) -> Ask:
    """The question that retrieval is asked for a granted request."""
    placed = granted.placed
    matched, subject = placed.identified.matched, placed.subject
    operation, asked = matched.route.operation, placed.wish.request
    if operation not in PARTS:
        raise Refusal(Code.INTERNAL, f"operation `{operation}` has no question")
    left_ms = int((matched.admitted.ends_at - time.monotonic()) * 1000) - DEADLINE_MARGIN_MS
    return Ask(
        operation=operation,  # type: ignore[arg-type]  # checked above
        subject=SubjectWire(
            subject_id=subject.subject_id,
            audience=subject.audience,
            profiles=subject.grant.profiles,
            tenants=subject.tenants,
            jurisdictions=subject.jurisdictions,
            task_scope=subject.task_scope,
            purpose=subject.purpose,
            policy_digest=subject.grant.digest,
        ),
        request=asked if isinstance(asked, RetrieveRequest) else None,
        check=asked if isinstance(asked, CheckRequest) else None,
        feedback=asked if isinstance(asked, FeedbackRequest) else None,
        units=placed.wish.page,
        reference=_reference(matched),
        request_id=matched.admitted.request_id,
        deadline_ms=max(1, left_ms),
    )


def _reference(matched: Matched) -> str | None:
    """The id or address in the path. Raises: Refusal ``not_found`` for what cannot be one."""
    for text in matched.names.values():
        try:
            return _ADDRESS.validate_python(text)
        except ValidationError:
            raise Refusal(Code.NOT_FOUND, "no address has this form") from None
    return None


def peer_of(admitted: Admitted, snapshot: Snapshot) -> TrustedPeer | None:
    """The trusted proxy that sent this request, if one did."""
    return trusted_peer(admitted.client, snapshot.trusted_peers)
