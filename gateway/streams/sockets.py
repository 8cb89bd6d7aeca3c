"""WebSockets of opaque routes: decided like any request, dialled, accepted, and looked after.

The handshake walks stations *admit* to *decide* as a GET. The upstream is dialled before the
caller is accepted; whatever is refused is refused as HTTP, and nothing of it was dialled. The
record is written when the socket has ended.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from gateway import stations
from gateway.errors import PROBLEM_JSON, Code, Refusal, challenge, problem_body, status_of
from gateway.ingress.body import Body
from gateway.ingress.handshake import LEG
from gateway.relay.duplex import By, relay_messages
from gateway.relay.headers import PRIVATE
from gateway.relay.upstream import CallerGone, UpstreamError
from gateway.relay.websocket import SocketLimits
from gateway.stations import Granted
from gateway.streams.again import decided_anew
from gateway.streams.register import End, OpenStream, Sort
from gateway.visit import Visit, recorded, reset
from gateway.wire.closing import GOING_AWAY, LOST, NOT_ALLOWED, RESTART, Closed

if TYPE_CHECKING:
    from gateway.app import DataPlane
    from gateway.relay.socket import UpstreamSocket
    from gateway.wire.leg import Leg

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
_TOLD: Final[Mapping[End, Closed]] = {
    End.NARROWED: Closed(NOT_ALLOWED, "not allowed any more"),
    End.EXPIRED: Closed(NOT_ALLOWED, "credential expired"),
    End.REVOKED: Closed(NOT_ALLOWED, "credential expired"),  # told the same, see `gateway.reasons`
    End.UNDECIDED: Closed(NOT_ALLOWED, "not allowed any more"),
    End.DRAIN: Closed(RESTART, "service restart"),
    End.LIMIT: Closed(GOING_AWAY, "open for too long"),
    End.IDLE: Closed(GOING_AWAY, "idle"),
}
_LOG: Final = logging.getLogger(__name__)


async def answer(
    plane: DataPlane, scope: MutableMapping[str, Any], receive: Receive, send: Send
) -> None:
    """One handshake and, if it is allowed, the socket until its end."""
    headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
    scope["headers"] = headers
    visit = plane.visit_of(scope, headers)
    body = Body(receive, headers, plane.limits)
    caller = _Caller(scope, receive, send, visit)

    async def work() -> None:
        granted = await _granted(plane, scope, caller, body)
        await _relayed(plane, granted, caller, body)

    await recorded(work(), plane.sink, visit, body, caller)


class _Caller:
    """The caller's end of a socket, and what is noted about it."""

    def __init__(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, visit: Visit
    ) -> None:
        self._scope = scope
        self.receive = receive
        self.send = send
        self.visit = visit
        self.leg: Leg = scope["extensions"][LEG]["leg"]

    async def accept(self, subprotocol: str | None) -> None:
        visit = self.visit
        visit.status, visit.sent = 101, True
        headers = [
            (b"x-request-id", visit.request_id.encode("ascii")),
            (b"x-policy-digest", visit.digest.encode("ascii")),
        ]
        await self.send(
            {"type": "websocket.accept", "subprotocol": subprotocol, "headers": headers}
        )

    async def refuse(self, refusal: Refusal) -> None:
        """The problem document; a reset when the socket was accepted already."""
        visit = self.visit
        visit.code, visit.decision = str(refusal.code), "deny"
        if visit.sent:
            await self.abort()
            return
        document = problem_body(refusal.code, visit.request_id)
        headers = [
            (b"content-type", PROBLEM_JSON),
            (b"content-length", b"%d" % len(document)),
            *PRIVATE,
            *refusal.headers,
            (b"x-request-id", visit.request_id.encode("ascii")),
        ]
        if visit.digest:
            headers.append((b"x-policy-digest", visit.digest.encode("ascii")))
        visit.status, visit.sent, visit.bytes_out = status_of(refusal.code), True, len(document)
        start = {"type": "websocket.http.response.start", "status": visit.status}
        try:
            await self.send({**start, "headers": headers})
            await self.send({"type": "websocket.http.response.body", "body": document})
        except OSError:
            return  # nobody is there to be refused

    async def abort(self) -> None:
        reset(self._scope, self.visit)


async def _granted(
    plane: DataPlane, scope: MutableMapping[str, Any], caller: _Caller, body: Body
) -> Granted:
    """Stations 1 to 5. Raises: Refusal."""
    await caller.receive()  # connect
    if plane.streams.draining:
        raise Refusal(Code.OVERLOADED, "draining")
    visit = caller.visit
    http = {**scope, "scheme": {"ws": "http", "wss": "https"}[scope["scheme"]]}
    admitted = stations.admit(
        http,
        request_id=visit.request_id,
        trace=visit.trace,
        ends_at=time.monotonic() + plane.limits.request_s,
    )
    visit.passed("admit")
    return await plane.decided(admitted, visit, body, opening=True)


async def _relayed(plane: DataPlane, granted: Granted, caller: _Caller, body: Body) -> None:
    """Dial, accept, pass messages on until an end. Raises: Refusal; CallerGone; Truncated."""
    end: asyncio.Future[Closed] = asyncio.get_running_loop().create_future()

    def ended(why: End) -> None:
        if not end.done():
            end.set_result(_TOLD[why])

    principal = granted.placed.identified.principal
    with plane.streams.opened(
        Sort.SOCKET,
        subject="" if principal is None else granted.placed.subject.subject_id,
        digest=caller.visit.digest,
        expires_at=None if principal is None else principal.expires_at,
        again=functools.partial(decided_anew, plane, granted, opening=True),
        on_end=ended,
    ) as stream:
        upstream = await _dialled(plane, granted, caller)
        caller.visit.passed("relay")
        try:
            if stream.ended is not None:
                raise Refusal(Code.FORBIDDEN, f"{stream.ended} while the upstream was dialled")
            await caller.accept(upstream.subprotocol)
            await _passed_on(caller, upstream.leg, stream, end)
        except BaseException:
            upstream.leg.tell(Closed(GOING_AWAY))
            await upstream.leg.gone()
            raise
        finally:
            body.read_bytes = upstream.leg.sent_bytes
            caller.visit.bytes_out = caller.leg.sent_bytes
            caller.visit.passed("inspect")


async def _passed_on(
    caller: _Caller, upstream: Leg, stream: OpenStream, end: asyncio.Future[Closed]
) -> None:
    stream.count = lambda: caller.leg.messages + upstream.messages
    relayed = await relay_messages(caller.leg, upstream, end=end)
    if relayed.by is By.GATEWAY:
        caller.visit.code = stream.ended.code if stream.ended else ""
    elif relayed.end.code == LOST:
        caller.visit.code = "caller_gone" if relayed.by is By.CALLER else "truncated"


async def _dialled(plane: DataPlane, granted: Granted, caller: _Caller) -> UpstreamSocket:
    """The upstream's socket. Raises: Refusal; CallerGone when the caller leaves meanwhile."""
    admitted = granted.placed.identified.matched.admitted
    offered = [value for name, value in admitted.headers if name == b"sec-websocket-protocol"]
    names = [one.strip(" \t") for value in offered for one in value.decode("ascii").split(",")]
    limits = SocketLimits(message_bytes=plane.limits.message_bytes, ping_s=plane.limits.ping_s)
    dial = asyncio.ensure_future(
        plane.hop.socket(stations.passage_of(granted), tuple(names), limits=limits, now=time.time())
    )
    gone = asyncio.ensure_future(caller.receive())  # before it is accepted, only its end comes
    try:
        await asyncio.wait({dial, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not gone.done():
            return dial.result()
        await _dropped(dial)
        raise CallerGone("the caller left before it was accepted")
    except asyncio.CancelledError:
        await _dropped(dial)
        raise
    except UpstreamError as error:
        asked = challenge() if status_of(error.code) == 401 else ()
        raise Refusal(error.code, str(error), headers=asked) from error
    finally:
        gone.cancel()


async def _dropped(dial: asyncio.Future[UpstreamSocket]) -> None:
    """Let a dial go that nobody wants; one that was just made is closed."""
    dial.cancel()
    (made,) = await asyncio.gather(dial, return_exceptions=True)
    if not isinstance(made, BaseException):
        made.leg.tell(Closed(GOING_AWAY))
        await made.leg.gone()
