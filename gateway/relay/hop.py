"""The hop to an upstream: what is sent in whose name, over whose connections.

Every request carries the same set of identity headers, empty where there is nothing to say,
so that an upstream which trusts one of them can never read a client's. Only an upstream
that the policy marks ``may_retrieve`` gets a delegation, and only for an identified caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from gateway.authn import delegation
from gateway.authn.own_keys import OwnKeys
from gateway.errors import Code, Refusal
from gateway.ingress.body import Body, declared_bytes, has_body
from gateway.ingress.normalise import valid_host
from gateway.ingress.provenance import forwarded_for, told_once
from gateway.relay import assertion, headers
from gateway.relay.upstream import (
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTransport,
)
from gateway.relay.websocket import Opening, SocketLimits, UpstreamSocket
from policies.bindings import RouteMode, TrustedPeer, Upstream
from policies.subject import Principal, Subject


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


class Hop:
    """Sends passages. Transports are made on first use, one per upstream and audience."""

    def __init__(self, targets: Mapping[str, Target], *, keys: OwnKeys, gateway_id: str) -> None:
        self._targets = targets
        self._keys = keys
        self._gateway_id = gateway_id
        self._transports: dict[tuple[str, str], UpstreamTransport] = {}
        self._delegations = delegation.Delegations(keys, gateway_id=gateway_id)

    async def send(self, passage: Passage, body: Body, *, now: float) -> UpstreamResponse:
        """The upstream's response, once its header block is complete.

        Raises: Refusal ``upstream_unavailable`` for an upstream without an address;
        UpstreamError; CallerGone.
        """
        target = self._target(passage)
        key = (passage.upstream.name, passage.subject.grant.profile)
        transport = self._transports.get(key)
        if transport is None:
            transport = self._transports[key] = target.transport()
        sends_body = has_body(passage.client_headers)
        return await transport.request(
            UpstreamRequest(
                method=passage.method,
                target=_target_of(passage),
                headers=self._headers(passage, target, now),
                body=body.pieces() if sends_body else None,
                body_bytes=declared_bytes(passage.client_headers) if sends_body else None,
            )
        )

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
        return left

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def identity(self, passage: Passage, now: float) -> list[tuple[bytes, bytes]]:
        """What an upstream is told of a caller: every header on every request, maybe empty."""
        subject = passage.subject
        digest = subject.grant.digest
        signed = assertion.assertion(
            self._keys,
            gateway_id=self._gateway_id,
            token_audience=passage.upstream.token_audience,
            subject_id=subject.subject_id,
            audience=subject.audience,
            profile=subject.grant.profile,
            digest=digest,
            request_id=passage.request_id,
            method=passage.method,
            path=passage.raw_path.decode("ascii"),
            now=now,
        )
        delegated = b""
        if passage.upstream.may_retrieve and passage.caller is not None:
            delegated = self._delegations.token(
                passage.caller, upstream=passage.upstream.name, digest=digest, now=now
            )
        return [
            (headers.SUBJECT, subject.subject_id.encode("ascii")),
            (headers.AUDIENCE, subject.audience.encode("ascii")),
            (headers.PROFILE, subject.grant.profile.encode("ascii")),
            (assertion.HEADER, signed),
            (delegation.HEADER, delegated),
            (b"x-request-id", passage.request_id.encode("ascii")),
            (b"traceparent", passage.traceparent),
        ]


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
