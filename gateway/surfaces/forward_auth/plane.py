"""The endpoint: stations *admit* to *decide* over what a proxy was asked, then *record*.

It never reads a body and never relays. A proxy that gets no 200 from here must refuse.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from gateway import stations
from gateway.app import DataPlane
from gateway.errors import PROBLEM_JSON, Code, Headers, Refusal, problem_body, status_of
from gateway.ingress.body import Body
from gateway.reasons import Why
from gateway.relay.headers import PRIVATE
from gateway.relay.hop import Passage
from gateway.stations import Granted
from gateway.surfaces.forward_auth.dialects import (
    DIALECTS,
    PREFIX,
    Dialect,
    Forwarded,
    Misasked,
    read,
)
from gateway.visit import Visit, recorded, reset, visit_of
from policies.bindings import TrustedPeer

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
        plane = self.plane
        dialect = DIALECTS.get(bytes(scope.get("raw_path") or b""))
        # a traceparent is the client's own, which every proxy passes on: linked, never continued
        visit = visit_of(
            scope, headers, plane.sink, plane.snapshots, surface=SURFACE, continues=False
        )
        body = Body(receive, headers, plane.limits)
        writer = _Writer(scope, send, visit, body, dialect)
        work = self._answer(dialect, visit, body, headers, writer)
        await recorded(work, plane.sink, visit, body, writer)

    async def _answer(
        self, dialect: Dialect | None, visit: Visit, body: Body, headers: Headers, writer: _Writer
    ) -> None:
        try:
            async with asyncio.timeout(self.plane.limits.request_s):
                identity = await self._allowed(dialect, visit, body, headers)
        except TimeoutError:
            raise Refusal(Code.IDENTITY_UNAVAILABLE, "deadline") from None
        await writer.allow(identity)

    async def _allowed(
        self,
        dialect: Dialect | None,
        visit: Visit,
        body: Body,
        headers: Headers,
    ) -> list[tuple[bytes, bytes]]:
        """What the upstream is to be told of the caller. Raises: Refusal."""
        if dialect is None:
            raise Refusal(Code.NOT_FOUND, "no such dialect")
        peer = visit.believed
        if peer is None or not dialect.words <= set(peer.headers):
            raise Refusal(
                Code.FORBIDDEN,
                f"policy believes no peer here under `{dialect.name}`",
                why=Why.UNTRUSTED_PROXY,
            )
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
        granted = await self.plane.decided(
            admitted, visit, body, opening=told.opens_socket, elsewhere=True
        )
        if visit.lesson is not None and not told.opens_socket:
            visit.lesson.learn(granted, headers, socket)
        return self.plane.hop.identity(passage_of(granted, told.method, peer), time.time())


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


class _Writer:
    """Writes the one answer to a proxy."""

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        send: Send,
        visit: Visit,
        body: Body,
        dialect: Dialect | None,
    ) -> None:
        self._scope = scope
        self._send = send
        self._visit = visit
        self._body = body
        self._dialect = dialect

    async def allow(self, identity: list[tuple[bytes, bytes]]) -> None:
        """200, with what the upstream is to be told."""
        await self._whole(200, [*PRIVATE, *identity], b"")

    async def refuse(self, refusal: Refusal) -> None:
        """The problem document; ``code`` stays what it is, the status is one the proxy hands on."""
        visit, dialect = self._visit, self._dialect
        visit.code, visit.decision = str(refusal.code), "deny"
        if visit.sent:
            await self.abort()
            return
        status = status_of(refusal.code)
        document = problem_body(refusal.code, visit.request_id)
        # what the proxy itself gets wrong stays a 400 (nginx makes it a 500): operators must see it
        handed = dialect.status(status) if dialect and not isinstance(refusal, Misasked) else status
        if handed != status:
            status = handed
            document = orjson.dumps({**orjson.loads(document), "status": status})
        headers = [(b"content-type", PROBLEM_JSON), *PRIVATE, *refusal.headers]
        headers.append((b"x-request-id", visit.request_id.encode("ascii")))
        await self._whole(status, headers, document)

    async def abort(self) -> None:
        """A reset, which a proxy takes for a refusal."""
        reset(self._scope, self._visit)

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        visit = self._visit
        visit.status, visit.sent, visit.bytes_out = status, True, len(body)
        if visit.digest:
            headers.append((b"x-policy-digest", visit.digest.encode("ascii")))
        headers.append((b"content-length", b"%d" % len(body)))
        if not self._body.ended:  # a body that nobody reads
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def beside(plane: DataPlane) -> Asgi:
    """The data listener: what begins with ``/-/authz/`` is decided only, all else answered."""
    forward_auth = ForwardAuth(plane)

    async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and bytes(scope.get("raw_path") or b"").startswith(PREFIX)
        await (forward_auth if ours else plane)(scope, receive, send)

    return application
