"""The hop to an upstream: what is sent in whose name, over whose connections.

Every request carries the same set of identity headers, empty where there is nothing to say,
so that an upstream which trusts one of them can never read a client's. Only an upstream
that the policy marks ``may_retrieve`` gets a delegation, and only for an identified caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.authn import delegation
from gateway.authn.own_keys import OwnKeys
from gateway.errors import Code, Refusal
from gateway.ingress.body import Body, declared_bytes, has_body
from gateway.ingress.normalise import valid_host
from gateway.ingress.provenance import forwarded_for, told_once
from gateway.relay import assertion, headers
from gateway.relay.loan import Lender, Loan
from gateway.relay.upstream import (
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTransport,
    head_of,
)
from gateway.relay.websocket import Opening, SocketLimits
from policies.bindings import RouteMode, TrustedPeer, Upstream
from policies.subject import Principal, Subject

if TYPE_CHECKING:
    from gateway.relay.socket import UpstreamSocket


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One decided request on its way to an upstream.

    ``raw_path`` and ``query`` are the bytes that were authorised. ``caller`` is None for an
    anonymous one. ``traceparent`` is ours.
    """

    method: str
    raw_path: bytes
    query: bytes
    client_headers: tuple[tuple[bytes, bytes], ...]
    client: str
    scheme: str
    host: bytes
    mode: RouteMode
    upstream: Upstream
    subject: Subject
    caller: Principal | None
    request_id: str
    traceparent: bytes
    trusted_peer: TrustedPeer | None


@dataclass(frozen=True, slots=True)
class Target:
    """Where an upstream listens (its Host value), and how a transport to it is made."""

    authority: bytes
    transport: Callable[[], UpstreamTransport]
    socket: Callable[[Opening, SocketLimits], Awaitable[UpstreamSocket]] | None = None
    """How a WebSocket to it is opened; None: never."""
    signs_each: bool = False
    """Whether reads, too, have an assertion of their own each."""


class Hop:
    """Sends passages. Transports are made on first use, one per upstream and audience."""

    def __init__(self, targets: Mapping[str, Target], *, keys: OwnKeys, gateway_id: str) -> None:
        self._targets = targets
        self._keys = keys
        self._gateway_id = gateway_id
        self._transports: dict[tuple[str, str], UpstreamTransport] = {}
        self._lenders: dict[tuple[str, str], Lender] = {}
        self._delegations = delegation.Delegations(keys, gateway_id=gateway_id)

    async def send(
        self, passage: Passage, body: Body, *, now: float, loan: Loan | None = None
    ) -> UpstreamResponse:
        """The upstream's response, once its header block is complete.

        ``loan`` is one over which this very passage was asked already.

        Raises: Refusal ``upstream_unavailable`` for an upstream without an address;
        UpstreamError; CallerGone.
        """
        target = self._target(passage)
        key = (passage.upstream.name, passage.subject.grant.profile)
        transport = self._transports.get(key)
        if transport is None:
            transport = self._transports[key] = target.transport()
            if isinstance(transport, Lender):
                self._lenders[key] = transport
        sends_body = has_body(passage.client_headers)
        request = UpstreamRequest(
            method=passage.method,
            target=_target_of(passage),
            headers=self._headers(passage, target, now),
            body=body.pieces() if sends_body else None,
            body_bytes=declared_bytes(passage.client_headers) if sends_body else None,
        )
        if loan is not None:
            return await loan.resume(request)
        return await transport.request(request)

    def outline(self, passage: Passage) -> Outline:
        """The head of every GET that this passage makes, but for what is each request's own.

        Raises: Refusal ``upstream_unavailable`` for an upstream without an address.
        """
        return Outline(self, passage, self._target(passage))

    def lends(self, outline: Outline) -> bool:
        """Whether connections for this outline are lent at all; not, once its upstream is
        somewhere else."""
        return outline.key in self._lenders and self._targets.get(outline.key[0]) is outline.target

    def lend(self, outline: Outline) -> Loan | None:
        """An idle connection for one GET of this outline; None: `send` it."""
        return self._lenders[outline.key].lend() if self.lends(outline) else None

    async def socket(
        self,
        passage: Passage,
        subprotocols: tuple[str, ...],
        *,
        limits: SocketLimits,
        now: float,
    ) -> UpstreamSocket:
        """The upstream's end of a WebSocket, open; its connection is used for nothing else.

        Raises: Refusal ``upstream_unavailable`` for an upstream without an address;
        UpstreamError.
        """
        target = self._target(passage)
        if target.socket is None:
            raise Refusal(Code.UPSTREAM_UNAVAILABLE, "an upstream that takes no socket")
        opening = Opening(
            target=_target_of(passage),
            headers=self._headers(passage, target, now),
            subprotocols=subprotocols,
        )
        return await target.socket(opening, limits)

    def _target(self, passage: Passage) -> Target:
        name = passage.upstream.name
        target = self._targets.get(name)
        if target is None:
            raise Refusal(Code.UPSTREAM_UNAVAILABLE, f"no address for upstream `{name}`")
        return target

    def _headers(
        self, passage: Passage, target: Target, now: float
    ) -> tuple[tuple[bytes, bytes], ...]:
        inspected = passage.mode is not RouteMode.OPAQUE
        return (
            (b"host", target.authority),
            *headers.of_client(passage.client_headers, inspected=inspected),
            *self.identity(passage, now),
            *_forwarded(passage),
        )

    def retarget(
        self, targets: Mapping[str, Target], changed: Collection[str]
    ) -> dict[str, list[UpstreamTransport]]:
        """Send to these from now on. The open transports of what ``changed`` are given back by
        upstream: exchanges go on over them, and the caller closes them when they have ended."""
        self._targets = targets
        left: dict[str, list[UpstreamTransport]] = {}
        for name, profile in [key for key in self._transports if key[0] in changed]:
            left.setdefault(name, []).append(self._transports.pop((name, profile)))
            self._lenders.pop((name, profile), None)
        return left

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def identity(self, passage: Passage, now: float) -> list[tuple[bytes, bytes]]:
        """What an upstream is told of a caller: every header on every request, maybe empty."""
        request_id = passage.request_id
        return [
            *_caller(passage.subject),
            (assertion.HEADER, self.signed(self.wording(passage), request_id, now)),
            (delegation.HEADER, self.delegated(passage, now)),
            (b"x-request-id", request_id.encode("ascii")),
            (b"traceparent", passage.traceparent),
        ]

    def wording(self, passage: Passage) -> assertion.Wording:
        """What every assertion of this passage says."""
        subject = passage.subject
        return assertion.wording(
            self._gateway_id,
            passage.upstream.token_audience,
            subject.subject_id,
            subject.audience,
            subject.grant.profile,
            subject.grant.digest,
            passage.method,
            passage.raw_path.decode("ascii"),
        )

    def shares(self, passage: Passage) -> bool:
        """Whether requests like this one may share an assertion: reads, of an upstream whose
        settings do not forbid it."""
        target = self._targets.get(passage.upstream.name)
        return passage.method in assertion.READS and target is not None and not target.signs_each

    def shared(self, passage: Passage) -> assertion.Shared:
        """The assertion that reads like this one share."""
        return assertion.Shared(self._keys, self.wording(passage))

    def signed(self, said: assertion.Wording, request_id: str, now: float) -> bytes:
        """The assertion of one request."""
        return assertion.signed(self._keys, said, request_id, now)

    def delegated(self, passage: Passage, now: float) -> bytes:
        """The delegation that goes with it; empty when its upstream may retrieve for nobody."""
        if not passage.upstream.may_retrieve or passage.caller is None:
            return b""
        digest = passage.subject.grant.digest
        return self._delegations.token(
            passage.caller, upstream=passage.upstream.name, digest=digest, now=now
        )


class Identity:
    """What an upstream is told of many requests of one caller, which differ in their ids only.

    `Hop.identity`, rendered once around the four values that are each request's own. ``size`` is
    roughly what it holds: its lines, the claims, and the assertion that is made of them.
    """

    __slots__ = ("_before", "_hop", "_said", "_shared", "passage", "size")

    def __init__(self, hop: Hop, passage: Passage) -> None:
        self.passage = passage
        self._hop = hop
        self._said = hop.wording(passage)
        self._shared = hop.shared(passage)
        lines = [b"%b: %b\r\n" % header for header in _caller(passage.subject)]
        self._before = b"".join(lines) + assertion.HEADER + b": "
        claims = sum(map(len, self._said))
        self.size = len(self._before) + claims + claims * 4 // 3 + _SIGNED_BYTES

    def lines(self, request_id: str, traceparent: bytes, now: float) -> bytes:
        """The header lines of one request."""
        hop, passage = self._hop, self.passage
        shares = hop.shares(passage)
        return _IDENTITY % (
            self._before,
            self._shared.text(request_id, now)
            if shares
            else hop.signed(self._said, request_id, now),
            hop.delegated(passage, now),
            request_id.encode("ascii"),
            traceparent,
        )


_SIGNED_BYTES: Final = 300
"""What an assertion has besides its claims: a head, a signature, moments and an id."""
_IDENTITY: Final = (
    b"%b%b\r\n" + delegation.HEADER + b": %b\r\nx-request-id: %b\r\ntraceparent: %b\r\n"
)


class Outline:
    """What `Hop.send` would send for a passage that is a GET, byte for byte, whatever its ids."""

    __slots__ = ("_after", "_before", "_identity", "key", "passage", "size", "target")

    def __init__(self, hop: Hop, passage: Passage, target: Target) -> None:
        self.key = (passage.upstream.name, passage.subject.grant.profile)
        self.passage = passage
        self.target = target
        self._identity = Identity(hop, passage)
        client = headers.of_client(passage.client_headers, inspected=False)
        before = ((b"host", target.authority), *client)
        request = UpstreamRequest(method="GET", target=_target_of(passage), headers=before)
        self._before = head_of(request)[:-2]
        after = [b"%b: %b\r\n" % header for header in _forwarded(passage)]
        self._after = b"".join(after) + b"\r\n"
        self.size = len(self._before) + self._identity.size + len(self._after)

    def head(self, request_id: str, traceparent: bytes, now: float) -> bytes:
        """One request, to its last byte."""
        return self._before + self._identity.lines(request_id, traceparent, now) + self._after


def _caller(subject: Subject) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (headers.SUBJECT, subject.subject_id.encode("ascii")),
        (headers.AUDIENCE, subject.audience.encode("ascii")),
        (headers.PROFILE, subject.grant.profile.encode("ascii")),
    )


def _target_of(passage: Passage) -> bytes:
    return passage.raw_path + (b"?" + passage.query if passage.query else b"")


def _forwarded(passage: Passage) -> list[tuple[bytes, bytes]]:
    """The X-Forwarded family from the socket; a trusted peer's own words where it may say them."""
    peer, told = passage.trusted_peer, passage.client_headers
    scheme, host = (
        told_once(told, peer, "x-forwarded-proto"),
        told_once(told, peer, "x-forwarded-host"),
    )
    if scheme not in {b"http", b"https"}:
        scheme = passage.scheme.encode("ascii")
    if not valid_host(host):
        host = passage.host
    chain = forwarded_for(told, peer, passage.client)
    return [
        (b"x-forwarded-for", chain.encode("ascii")),
        (b"x-forwarded-proto", scheme),
        (b"x-forwarded-host", host),
    ]
