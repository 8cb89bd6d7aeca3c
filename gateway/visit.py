"""One request from its first byte to its record, whatever surface it came to.

Laws
    * Whatever is raised becomes a refusal of the closed list, or a reset connection when an
      answer was already under way. Nothing raised ever becomes an answer.
    * Every request is recorded once, refused ones included.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.decisions.facts import Facts
from gateway.decisions.fields import STATIONS
from gateway.egress.tally import Tally
from gateway.errors import Code, Headers, Refusal
from gateway.holder import SnapshotHolder
from gateway.ingress.abort import ABORT
from gateway.ingress.body import Body
from gateway.ingress.provenance import request_id_from, trusted_peer
from gateway.ingress.shortcut import BEGUN, LESSON, extension
from gateway.journal.event import SecurityEvent
from gateway.relay.stream import Truncated
from gateway.relay.upstream import CallerGone
from gateway.telemetry.fields import RequestRecord, StationTime
from gateway.telemetry.trace import TraceContext
from policies.bindings import TrustedPeer
from retrieval.contract import Answer

if TYPE_CHECKING:  # its rate library loads only where a limit is set
    from gateway.fastpath.begun import Begun
    from gateway.fastpath.keeper import Lesson
    from gateway.relay.admission import Place

_LOG: Final = logging.getLogger(__name__)


_time: Final = StationTime._make
_NEXT: Final = dict(zip(STATIONS, (*STATIONS[1:], STATIONS[-1]), strict=True))
"""The station after the one that was passed last; nothing comes after *inspect* but the writing."""


class RequestSink(Protocol):
    """Where requests are traced, counted and logged. Never fails, never waits."""

    def begin(self, traceparent: bytes | None, *, trusted: bool) -> TraceContext: ...

    def record(self, record: RequestRecord) -> None: ...


@dataclass(slots=True)
class Visit:
    """What is known so far about one request: filled by the stations, read by the record.

    ``believed`` is the peer that sent it, where policy trusts one at that address. ``reason`` and
    ``issuer`` are those of a `Refusal`.
    """

    request_id: str
    trace: TraceContext
    method: str
    peer: str
    surface: str = "data"
    began_ns: int = field(default_factory=time.time_ns)
    started_ns: int = field(default_factory=time.perf_counter_ns)
    route: str = ""
    audience: str = ""
    profile: str = ""
    digest: str = ""
    decision: str = "deny"
    code: str = ""
    status: int = 0
    event: SecurityEvent | None = None
    bytes_out: int = 0
    sent: bool = False
    times: list[StationTime] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    facts: Facts = field(default_factory=Facts)
    place: Place | None = None
    reason: str = ""
    issuer: str = ""
    begun: Begun | None = None
    believed: TrustedPeer | None = None
    lesson: Lesson | None = None
    _mark_ns: int = 0

    def __post_init__(self) -> None:
        self._mark_ns = self.started_ns

    def passed(self, station: str) -> None:
        """Note that a station is done; it began where the one before ended."""
        now = time.perf_counter_ns()
        self.times.append(_time((station, self._mark_ns, now)))
        self.facts.station = station
        self._mark_ns = now

    def refused(self, refusal: Refusal) -> None:
        """Note why, and at which station: the one after those that were passed."""
        self.reason, self.issuer = refusal.why or "", refusal.issuer
        self.facts.station = _NEXT[self.facts.station]

    def walk(self) -> Facts:
        """Begin the stations after *admit*, maybe anew: what an earlier walk found is void,
        but for the units that it kept back."""
        self.route = self.audience = self.profile = ""
        self.decision = "deny"
        self.facts = Facts(tally=self.tally, station="admit")
        return self.facts

    def relayed(self, answer: Answer) -> None:
        """Note an answer of retrieval, and where its own time went. It may come twice: a
        second question follows the inspection of the first answer."""
        if self.times and self.times[-1].station.startswith(("relay", "retrieval.")):
            self.passed("inspect")
        began = self._mark_ns
        self.passed("relay")
        for phase, spent_ms in answer.timings:
            self.times.append(
                StationTime(f"retrieval.{phase}", began, began + int(spent_ms * 1_000_000))
            )

    def record(self, body: Body) -> RequestRecord:
        return RequestRecord(
            trace=self.trace,
            request_id=self.request_id,
            surface=self.surface,
            method=self.method,
            route=self.route,
            audience=self.audience,
            profile=self.profile,
            decision=self.decision,
            status=self.status,
            code=self.code,
            policy_digest=self.digest,
            began_ns=self.began_ns,
            started_ns=self.started_ns,
            ended_ns=time.perf_counter_ns(),
            stations=tuple(self.times),
            reason=self.reason,
            issuer=self.issuer,
            event=self.event,
            facts=self.facts,
            bytes_in=body.read_bytes,
            bytes_out=self.bytes_out,
            peer=self.peer,
        )


class Writer(Protocol):
    """Who writes the one answer of a request."""

    async def refuse(self, refusal: Refusal) -> None:
        """The problem document; a reset when an answer is already under way."""

    async def abort(self) -> None:
        """A reset: nobody may take what was sent for a whole answer."""


def visit_of(
    scope: MutableMapping[str, Any],
    headers: Headers,
    sink: RequestSink,
    snapshots: SnapshotHolder,
    *,
    surface: str = "data",
    continues: bool = True,
) -> Visit:
    """What is known of a request before the first station. A trusted peer's trace is continued if
    that surface ``continues`` any; every other one is linked."""
    begun: Begun | None = extension(scope, BEGUN)
    client = scope.get("client")
    address = client[0] if client else ""
    if begun is not None:
        return Visit(
            begun.request_id,
            begun.trace,
            scope["method"],
            address,
            began_ns=begun.began_ns,
            started_ns=begun.started_ns,
            begun=begun,
        )
    found = [value for name, value in headers if name == b"traceparent"]
    peer = trusted_peer(address, snapshots.current.trusted_peers if snapshots.ready else ())
    trusted = continues and peer is not None
    return Visit(
        request_id=request_id_from(headers, peer),
        trace=sink.begin(found[0] if len(found) == 1 else None, trusted=trusted),
        method=scope["method"],
        peer=address,
        surface=surface,
        believed=peer,
        lesson=extension(scope, LESSON),
    )


def reset(scope: MutableMapping[str, Any], visit: Visit) -> None:
    """Cut the caller's connection: an answer that was begun cannot be completed."""
    was_there = extension(scope, ABORT)["call"]()
    visit.code = visit.code or ("truncated" if was_there else "caller_gone")


async def recorded(
    work: Awaitable[None], sink: RequestSink, visit: Visit, body: Body, writer: Writer
) -> None:
    """Do the work of one request, to its answer, its refusal or its end, and record it."""
    try:
        await work
    except Refusal as refusal:
        visit.refused(refusal)
        await writer.refuse(refusal)
    except CallerGone:
        visit.code = visit.code or "caller_gone"  # why we ended it comes first
        visit.status = visit.status or 499
    except Truncated:
        await writer.abort()
    except asyncio.CancelledError:  # the process ends and has waited for long enough
        ending = Refusal(Code.OVERLOADED, "the process ends")
        visit.refused(ending)
        await writer.refuse(ending)
    except Exception as error:  # noqa: BLE001 - mapped to a refusal, never to an answer
        # where, not what: the text of an exception may quote a request or a unit
        frames = "".join(traceback.format_tb(error.__traceback__))
        name = type(error).__name__
        _LOG.error("request %s failed: %s\n%s", visit.request_id, name, frames)
        failed = Refusal(Code.INTERNAL, name)
        visit.refused(failed)
        await writer.refuse(failed)
    finally:
        if visit.place is not None:
            visit.place.leave()
        if visit.begun is not None:
            visit.begun.let_go()
        sink.record(visit.record(body))
