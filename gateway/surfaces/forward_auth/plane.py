"""The endpoint: stations *admit* to *decide* over what a proxy was asked, then *record*.

It never reads a body and never relays. A proxy that gets no 200 from here must refuse.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from gateway import stations
from gateway.app import DataPlane, Visit, sharer_of
from gateway.errors import PROBLEM_JSON, Code, Headers, Refusal, problem_body, status_of
from gateway.ingress.body import Body
from gateway.ingress.provenance import request_id_from, trusted_peer
from gateway.ingress.shortcut import LESSON, extension
from gateway.relay.headers import PRIVATE
from gateway.relay.hop import Passage
from gateway.relay.upstream import CallerGone
from gateway.stations import Granted
from gateway.surfaces.forward_auth.dialects import (
    DIALECTS,
    PREFIX,
    Dialect,
    Forwarded,
    Misasked,
    read,
)
from policies.bindings import RouteMode, TrustedPeer

SURFACE: Final = "forward_auth"

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Asgi = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForwardAuth:
    """Answers ``/-/authz/<dialect>`` with the parts and the policy of a data plane."""

    plane: DataPlane

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # Copied before the first await: a server may append trailers to its own list.
        headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
        scope["headers"] = headers
        dialect = DIALECTS.get(bytes(scope.get("raw_path") or b""))
        visit, peer = self._visit(scope, headers)
        body = Body(receive, headers, self.plane.limits)
        try:
            try:
                async with asyncio.timeout(self.plane.limits.request_s):
                    identity = await self._allowed(dialect, peer, visit, body, headers)
                await _write(send, visit, 200, [*PRIVATE, *identity], b"", ended=body.ended)
            except Refusal as refusal:
                await _refuse(send, visit, refusal, dialect, ended=body.ended)
            except TimeoutError:
                late = Refusal(Code.IDENTITY_UNAVAILABLE, "deadline")
                await _refuse(send, visit, late, dialect, ended=body.ended)
            except CallerGone:
                visit.code, visit.status = "caller_gone", 499
            except Exception as error:  # mapped to a refusal, never to an answer
                # where, not what: the text of an exception may quote a request
                frames = "".join(traceback.format_tb(error.__traceback__))
                name = type(error).__name__
                _LOG.error("request %s failed: %s\n%s", visit.request_id, name, frames)
                if visit.sent:
                    raise
                await _refuse(send, visit, Refusal(Code.INTERNAL, name), dialect, ended=body.ended)
        finally:
            if visit.place is not None:
                visit.place.leave()
            self.plane.sink.record(visit.record(body))

    def _visit(
        self, scope: MutableMapping[str, Any], headers: Headers
    ) -> tuple[Visit, TrustedPeer | None]:
        client = scope.get("client")
        address = client[0] if client else ""
        snapshots = self.plane.snapshots
        peer = trusted_peer(address, snapshots.current.trusted_peers if snapshots.ready else ())
        found = [value for name, value in headers if name == b"traceparent"]
        # the client's own, which every proxy passes on: linked, never continued
        trace = self.plane.sink.begin(found[0] if len(found) == 1 else None, trusted=False)
        request_id = request_id_from(headers, peer)
        visit = Visit(request_id, trace, scope["method"], address, surface=SURFACE)
        visit.lesson = extension(scope, LESSON)
        return visit, peer

    async def _allowed(
        self,
        dialect: Dialect | None,
        peer: TrustedPeer | None,
        visit: Visit,
        body: Body,
        headers: Headers,
    ) -> list[tuple[bytes, bytes]]:
        """What the upstream is to be told of the caller. Raises: Refusal."""
        if dialect is None:
            raise Refusal(Code.NOT_FOUND, "no such dialect")
        if peer is None or not dialect.words <= set(peer.headers):
            raise Refusal(Code.FORBIDDEN, f"policy believes no peer here under `{dialect.name}`")
        told = read(dialect, headers, peer)
        visit.peer, socket = address_of(told) or visit.peer, visit.peer
        visit.method = method_of(told)
        admitted = stations.admit(
            {
                "method": visit.method,
                "raw_path": told.raw_path,
                "query_string": told.query,
                "headers": told.headers,
                "client": (visit.peer, 0),
                "scheme": told.scheme,
            },
            request_id=visit.request_id,
            trace=visit.trace,
            ends_at=time.monotonic() + self.plane.limits.request_s,
        )
        visit.passed("admit")
        granted = await self._decided(admitted, visit, body, opening=told.opens_socket)
        if visit.lesson is not None and not told.opens_socket:
            visit.lesson.learn(granted, headers, socket)
        return self.plane.hop.identity(passage_of(granted, told.method, peer), time.time())

    async def _decided(
        self, admitted: stations.Admitted, visit: Visit, body: Body, *, opening: bool
    ) -> Granted:
        """Stations 2 to 5, under the snapshot that is in force now; ``opening``: for a socket."""
        snapshot, facts = self.plane.snapshots.current, visit.walk()
        facts.snapshot = snapshot
        visit.digest = snapshot.digest
        matched = stations.match(admitted, snapshot)
        visit.route = matched.route.id
        if matched.route.mode is not RouteMode.OPAQUE:
            raise Refusal(Code.GUARD_REQUIRED, f"mode `{matched.route.mode}`")
        if opening:
            stations.may_open(matched)
        visit.passed("match")
        identified = await stations.identify(
            matched, self.plane.authenticator, self.plane.keys, gateway_id=self.plane.gateway_id
        )
        facts.identified = True
        facts.principal, facts.actor = identified.principal, identified.actor
        wish = facts.wish = await stations.wish_of(identified, body)
        visit.passed("identify")
        placed = stations.place(identified, wish, facts.decisions.append)
        facts.subject = placed.subject
        visit.audience, visit.profile = placed.subject.audience, placed.subject.grant.profile
        visit.passed("place")
        granted = stations.decide(placed, facts.decisions.append)
        if self.plane.admission is not None:
            visit.place = await self.plane.admission.enter(
                matched.route.id, sharer_of(placed, visit.peer), declared_bytes=None
            )
        visit.passed("decide")
        visit.decision = "allow"
        return granted


def passage_of(granted: Granted, method: str, peer: TrustedPeer) -> Passage:
    """As the relay would send it, but with the method that the upstream will see."""
    return replace(stations.passage_of(granted), method=method, trusted_peer=peer)


def method_of(told: Forwarded) -> str:
    """The method that is decided: a HEAD as the GET whose head it is."""
    return "GET" if told.method == "HEAD" else told.method


def address_of(told: Forwarded) -> str:
    """The caller's address as its proxy tells it; else nothing: junk is nobody's address."""
    try:
        return str(ipaddress.ip_address(told.client))
    except ValueError:
        return ""


async def _refuse(
    send: Send, visit: Visit, refusal: Refusal, dialect: Dialect | None, *, ended: bool
) -> None:
    """The problem document; ``code`` stays what it is, the status is one the proxy hands on."""
    visit.code, visit.decision = str(refusal.code), "deny"
    status = status_of(refusal.code)
    document = problem_body(refusal.code, visit.request_id)
    # what the proxy itself gets wrong stays a 400 (nginx makes it a 500): operators must see it
    handed = dialect.status(status) if dialect and not isinstance(refusal, Misasked) else status
    if handed != status:
        status = handed
        document = orjson.dumps({**orjson.loads(document), "status": status})
    headers = [(b"content-type", PROBLEM_JSON), *PRIVATE, *refusal.headers]
    headers.append((b"x-request-id", visit.request_id.encode("ascii")))
    await _write(send, visit, status, headers, document, ended=ended)


async def _write(
    send: Send,
    visit: Visit,
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    *,
    ended: bool,
) -> None:
    visit.status, visit.sent, visit.bytes_out = status, True, len(body)
    if visit.digest:
        headers.append((b"x-policy-digest", visit.digest.encode("ascii")))
    headers.append((b"content-length", b"%d" % len(body)))
    if not ended:  # a body that nobody reads
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def beside(plane: DataPlane) -> Asgi:
    """The data listener: what begins with ``/-/authz/`` is decided only, all else answered."""
    forward_auth = ForwardAuth(plane)

    async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and bytes(scope.get("raw_path") or b"").startswith(PREFIX)
        await (forward_auth if ours else plane)(scope, receive, send)

    return application
