"""The data path: one raw ASGI callable that walks a request through the stations.

Outside Starlette on purpose: no middleware, no response class, nothing between a decision
and the bytes.

Laws
    * What holds for every request stands in `visit.py`.
    * A refusal that leaves a request body unread ends the connection.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gateway import inspection, stations
from gateway.authn.bearer import Authenticator
from gateway.authn.own_keys import OwnKeys
from gateway.egress.guard import Guard, PolicyMoved
from gateway.egress.scope import ScopeDocuments
from gateway.errors import PROBLEM_JSON, Code, Headers, Refusal, problem_body, status_of
from gateway.holder import SnapshotHolder
from gateway.ingress.body import Body, declared_bytes
from gateway.ingress.door import site_of
from gateway.ingress.limits import Limits
from gateway.ingress.opening import OPEN
from gateway.inspection import Inspected
from gateway.relay.headers import PRIVATE
from gateway.relay.hop import Hop
from gateway.relay.stream import WRITE_STALL_S, collect, relay_body
from gateway.relay.upstream import UpstreamError, UpstreamResponse
from gateway.relay.watch import CallerWatch
from gateway.stations import Admitted, Granted, Placed, Relayed
from gateway.streams import sockets
from gateway.streams.again import decided_anew
from gateway.streams.answers import cut_by, remarks, watched
from gateway.streams.register import End, OpenStreams
from gateway.surfaces import openapi
from gateway.visit import RequestSink, Visit, recorded, reset, visit_of
from policies.bindings import RouteMode

if TYPE_CHECKING:  # its rate library loads only where a limit is set
    from gateway.relay.admission import Admission

JWKS_PATH: Final = b"/.well-known/jwks.json"
PUBLISHED: Final = frozenset({JWKS_PATH, openapi.PATH})
"""Answered to everybody before any route is looked at."""
PLACINGS_MAX: Final = 4
"""How often one request is placed; each placing after the first needs a change of the policy."""
HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""How much of an unsized answer is held for an HTTP/1.0 caller, which cannot take chunks."""

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlane:
    """The ASGI application of the data listener, over the parts that it is composed of."""

    snapshots: SnapshotHolder
    authenticator: Authenticator
    keys: OwnKeys
    guard: Guard
    hop: Hop
    sink: RequestSink
    limits: Limits
    gateway_id: str
    documents: ScopeDocuments = field(default_factory=ScopeDocuments)
    admission: Admission | None = None
    streams: OpenStreams = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "streams", OpenStreams(self.snapshots, self.limits))

    def admit_by(self, admission: Admission | None) -> None:
        """Limit routes like this from now on; who is in stays in."""
        object.__setattr__(self, "admission", admission)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await sockets.answer(self, scope, receive, send)
        elif scope["type"] == "lifespan":
            await _lifespan(receive, send)

    async def _http(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # Copied before the first await: a server may append trailers to its own list.
        headers = tuple([(bytes(name), bytes(value)) for name, value in scope["headers"]])
        scope["headers"] = headers
        visit = self.visit_of(scope, headers)
        body = Body(receive, headers, self.limits)
        writer = _Writer(scope, receive, send, visit, body)
        work = self._answer(scope, receive, visit, body, writer)
        await recorded(work, self.sink, visit, body, writer)

    def visit_of(self, scope: MutableMapping[str, Any], headers: Headers) -> Visit:
        """What is known of a request before the first station."""
        return visit_of(scope, headers, self.sink, self.snapshots)

    async def _answer(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        visit: Visit,
        body: Body,
        writer: _Writer,
    ) -> None:
        ends_at = time.monotonic() + self.limits.request_s
        admitted = stations.admit(
            scope, request_id=visit.request_id, trace=visit.trace, ends_at=ends_at
        )
        visit.passed("admit")
        if admitted.method in {"GET", "HEAD"}:
            if admitted.raw_path == JWKS_PATH:
                await writer.publish(self.keys.jwks())
                return
            if admitted.raw_path == openapi.PATH:
                await writer.publish(openapi.document())
                return
        await writer.write(await self._settled(admitted, visit, body, receive))

    async def _settled(
        self, admitted: Admitted, visit: Visit, body: Body, receive: Receive
    ) -> Inspected:
        """Stations 2 to 7, walked anew while the policy moves on.

        Raises: Refusal ``policy_changed`` when the database enforces something that is not
        prepared here, or when the policy changed more often than a request may be placed.
        """
        for placing in range(1, PLACINGS_MAX + 1):
            try:
                return await self._inspected(admitted, visit, body, receive)
            except PolicyMoved as moved:
                if not await self._caught_up(moved) and placing > 1:
                    break
        raise Refusal(Code.POLICY_CHANGED, "more than once in one request")

    async def _caught_up(self, moved: PolicyMoved) -> bool:
        """Whether what the database enforces is in force here now: a swap, if it is prepared."""
        return self.snapshots.advance(moved.digest or await self.guard.enforced())

    async def decided(
        self,
        admitted: Admitted,
        visit: Visit,
        body: Body,
        *,
        opening: bool = False,
        elsewhere: bool = False,
    ) -> Granted:
        """Stations 2 to 5, under the snapshot that is in force now. ``opening``: for a socket;
        ``elsewhere``: for a proxy that relays itself, so only where nothing is looked into."""
        snapshot, facts = self.snapshots.current, visit.walk()
        facts.snapshot = snapshot
        visit.digest = snapshot.digest
        matched = stations.match(admitted, snapshot)
        visit.route = matched.route.id
        if elsewhere and matched.route.mode is not RouteMode.OPAQUE:
            raise Refusal(Code.GUARD_REQUIRED, f"mode `{matched.route.mode}`")
        if opening:
            stations.may_open(matched)
        visit.passed("match")
        identified = await stations.identify(
            matched, self.authenticator, self.keys, gateway_id=self.gateway_id
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
        visit.decision = "allow"
        if self.admission is not None and visit.place is None:
            visit.place = await self.admission.enter(
                matched.route.id,
                sharer_of(placed, visit.peer),
                declared_bytes=None if elsewhere else declared_bytes(admitted.headers),
            )
            body.bytes_max = visit.place.body_bytes
        visit.passed("decide")
        return granted

    async def _inspected(
        self, admitted: Admitted, visit: Visit, body: Body, receive: Receive
    ) -> Inspected:
        """Stations 2 to 7. Raises: PolicyMoved when they have to be walked anew."""
        granted = await self.decided(admitted, visit, body)
        matched = granted.placed.identified.matched
        if matched.route.mode is RouteMode.GUARD:
            left_s = max(0.001, matched.admitted.ends_at - time.monotonic())
            try:
                async with asyncio.timeout(left_s):
                    inspected = await inspection.guarded(
                        granted, self.guard, self.documents, visit.relayed, visit.tally
                    )
            except TimeoutError:
                raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "deadline") from None
            visit.event = inspected.event
        else:
            with CallerWatch(receive, body):
                if visit.lesson is not None and matched.route.mode is RouteMode.OPAQUE:
                    visit.lesson.learn(granted, admitted.headers, admitted.client)
                relayed = await stations.relay(granted, self.hop, body, visit.begun)
                visit.passed("relay")
                if matched.route.mode is RouteMode.OPAQUE:
                    inspected = self._open(visit, granted, await inspection.opaque(relayed))
                else:
                    inspected = await self._filtered(relayed, visit, body)
                    visit.event = inspected.event
        visit.passed("inspect")
        return inspected

    def _open(self, visit: Visit, granted: Granted, inspected: Inspected) -> Inspected:
        """The same answer, looked after for as long as it is open."""
        if inspected.stream is None or inspected.stream.done:
            return inspected
        again = functools.partial(decided_anew, self, granted, opening=False)

        def ended(why: End) -> None:
            visit.code = why.code

        stream = watched(inspected.stream, self.streams, granted, again=again, ended=ended)
        return replace(inspected, stream=stream)

    async def _filtered(self, relayed: Relayed, visit: Visit, body: Body) -> Inspected:
        """An upstream's JSON, filtered under the policy in force when it is there.

        The upstream answered already and is not asked twice: what moves is who may see what.
        Raises: Refusal, ``policy_changed`` also when the request would now go elsewhere.
        """
        document = await inspection.json_of(relayed)
        granted = relayed.granted
        for _ in range(PLACINGS_MAX):
            try:
                return await inspection.filtered(granted, document, self.guard, visit.tally)
            except PolicyMoved as moved:
                if not await self._caught_up(moved):
                    break
            before = granted.placed.identified.matched
            granted = await self.decided(before.admitted, visit, body)
            matched = granted.placed.identified.matched
            if (matched.route.id, matched.route.mode, matched.route.upstream) != (
                before.route.id,
                before.route.mode,
                before.route.upstream,
            ):
                break
        raise Refusal(Code.POLICY_CHANGED, "while the upstream answered")


def sharer_of(placed: Placed, address: str) -> str:
    """Whose allowance a request uses up: its subject's; that of the site it comes from, for a
    visitor without a token, who has as many addresses there as it likes."""
    return placed.subject.subject_id if placed.identified.principal else site_of(address)


class _Writer:
    """Writes the one answer of a request."""

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: Send,
        visit: Visit,
        body: Body,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._visit = visit
        self._body = body

    async def write(self, inspected: Inspected) -> None:
        """Everything that an inspected answer holds, with the request id added."""
        headers, stream = list(inspected.headers), inspected.stream
        if stream is None:
            await self._whole(inspected.status, headers, inspected.body)
            return
        sized = any(name == b"content-length" for name, _ in headers)
        if sized and stream.done and OPEN in self._scope["extensions"]:
            await self._at_once(inspected.status, headers, stream)
            return
        if not sized and self._scope.get("http_version") == "1.0":
            try:
                with CallerWatch(self._receive):
                    held = await collect(stream, bytes_max=HELD_BYTES_MAX)
            except UpstreamError as error:
                raise Refusal(error.code, str(error)) from error
            await self._whole(inspected.status, headers, held)
            return
        cut_by(stream, functools.partial(reset, self._scope, self._visit))
        try:
            await self._start(inspected.status, headers)
            remarks(stream, self._send)
            self._visit.bytes_out = await relay_body(stream, self._receive, self._send, self._body)
        finally:
            await stream.aclose()

    async def _at_once(
        self, status: int, headers: list[tuple[bytes, bytes]], stream: UpstreamResponse
    ) -> None:
        """A whole answer that is here already: head and body in one write."""
        visit, body = self._visit, b""
        try:
            body = await anext(aiter(stream), b"")  # what has arrived comes as one piece
        except UpstreamError as error:
            raise Refusal(error.code, str(error)) from error
        finally:
            await stream.aclose()
        visit.status = status
        open_with = self._scope["extensions"][OPEN]["call"]
        if open_with(status, self._finished(headers), body):
            visit.sent, visit.bytes_out = True, len(body)
            return
        await self._whole(status, headers, body)

    async def refuse(self, refusal: Refusal) -> None:
        """The problem document of a refusal; a reset when an answer is already under way."""
        self._visit.code, self._visit.decision = str(refusal.code), "deny"
        if self._visit.sent:
            await self.abort()
            return
        headers = [(b"content-type", PROBLEM_JSON), *PRIVATE, *refusal.headers]
        document = problem_body(refusal.code, self._visit.request_id, refusal.reason)
        await self._whole(status_of(refusal.code), headers, document)

    async def publish(self, document: bytes) -> None:
        """A public document that is the same for everybody."""
        self._visit.decision = "allow"
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"public, max-age=60"),
        ]
        await self._whole(200, headers, document)

    async def abort(self) -> None:
        """Reset the connection, so that nobody takes what was sent for a whole answer."""
        reset(self._scope, self._visit)
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        headers = [one for one in headers if one[0] != b"content-length"]
        if status not in {204, 304}:
            headers.append((b"content-length", b"%d" % len(body)))
        try:
            async with asyncio.timeout(WRITE_STALL_S):
                await self._start(status, headers)
                self._visit.bytes_out = len(body)
                await self._send({"type": "http.response.body", "body": body, "more_body": False})
        except TimeoutError:  # a caller that does not read holds nothing for ever
            await self.abort()

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._visit.status, self._visit.sent = status, True
        headers = self._finished(headers)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def _finished(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers with those that every answer has."""
        headers = [*headers, (b"x-request-id", self._visit.request_id.encode("ascii"))]
        if self._visit.digest:
            headers.append((b"x-policy-digest", self._visit.digest.encode("ascii")))
        if not self._body.ended:
            headers.append((b"connection", b"close"))
        return headers


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
