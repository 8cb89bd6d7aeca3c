"""Decisions like one of a moment ago, given without a task.

A proxy asks with the client's header block and one line that names the target, which alone differs
from request to request. So that line is cut out, the block is looked up as in `fastpath`, and the
stations between decide over the target, once each.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final

from gateway.authn import delegation
from gateway.decisions.facts import Facts
from gateway.errors import GatewayError, Refusal
from gateway.fastpath.course import allowed
from gateway.fastpath.head import MARK, Head, read
from gateway.fastpath.keeper import Keeper, Lesson
from gateway.fastpath.lane import Lane
from gateway.fastpath.memory import Known
from gateway.ingress.opening import lines_of
from gateway.ingress.parser import STATUS_LINE
from gateway.ingress.provenance import new_request_id
from gateway.ingress.shortcut import Way
from gateway.relay.headers import PRIVATE
from gateway.relay.hop import Hop, Identity
from gateway.stations import Granted
from gateway.surfaces.forward_auth import dialects
from gateway.surfaces.forward_auth.dialects import DIALECTS, PREFIX, Dialect
from gateway.surfaces.forward_auth.plane import SURFACE, address_of, method_of, passage_of
from gateway.telemetry.fields import RequestRecord, StationTime

_PRIVATE: Final = lines_of(PRIVATE)
_JUDGED: Final = ("match", "identify", "place", "decide")
_OVERHEAD_BYTES: Final = 4_096
_CUT: Final = MARK + b"target"
_TARGET: Final = re.compile(
    rb"/[A-Za-z0-9\-._~!$&'()*+,=:@/]*(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@/?%]+)?(?=\r\n)"
)


class Asking:
    """The request of one dialect, as bytes."""

    __slots__ = ("_name", "dialect")

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._name = b"\r\n%b: " % dialect.target.encode("ascii")

    def cut(self, block: bytes) -> tuple[bytes, bytes] | None:
        """The target, and the block without it; None when it has another form."""
        at = block.lower().find(self._name)
        found = _TARGET.match(block, at + len(self._name)) if at >= 0 else None
        return None if found is None else (found[0], block[:at] + _CUT + block[found.end() :])


_ASKING: Final[Mapping[bytes, Asking]] = {
    b"GET %b HTTP/1.1" % path: Asking(dialect) for path, dialect in DIALECTS.items()
}


class Decided:
    """One allowed target: what its proxy is told, and what is recorded."""

    __slots__ = (
        "audience",
        "digest",
        "digest_line",
        "facts",
        "identity",
        "method",
        "peer",
        "profile",
        "route",
        "size",
    )

    def __init__(
        self, granted: Granted, identity: Identity, facts: Facts, peer: str, target_bytes: int
    ) -> None:
        placed = granted.placed
        matched = placed.identified.matched
        self.identity = identity
        self.facts = facts
        self.peer = peer
        self.method = matched.admitted.method
        self.route = matched.route.id
        self.audience = placed.subject.audience
        self.profile = placed.subject.grant.profile
        self.digest = matched.snapshot.digest
        digest = self.digest.encode("ascii")
        self.digest_line = b"x-policy-digest: %b\r\ncontent-length: 0\r\n" % digest
        # the target it is known by, and the path and query cut out of it
        self.size = _OVERHEAD_BYTES + 2 * target_bytes + identity.size


class DecisionLane:
    """Decides what it knows, and leaves to ``relaying`` what asks for no decision."""

    def __init__(self, keeper: Keeper, relaying: Lane) -> None:
        self._keeper = keeper
        self._relaying = relaying

    def take(self, way: Way, data: bytes) -> bool:
        """See `shortcut.Lane`."""
        if not data.startswith(b"GET " + PREFIX):
            return self._relaying.take(way, data)
        began, started = time.time_ns(), time.perf_counter_ns()
        head = read(data)
        asking = _ASKING.get(head.line) if head is not None else None
        if head is None or asking is None:
            return False
        cut = asking.cut(head.block)
        if cut is None:
            return False
        keeper, (target, block) = self._keeper, cut
        plane, now = keeper.plane, keeper.clock()
        name = keeper.name(way, head.line + block)
        known = keeper.known(name, now)
        if known is None:
            # Envoy says the length of the body that it does not send
            way.lesson = Lesson(keeper, name, head, way.scheme, bodiless=True)
            return False
        decided = known.courses.get(target)
        if decided is None:
            decided = _walked(known, asking.dialect, target, plane.hop)
            if decided is None:
                return False
            keeper.memory.add(known, target, decided)
        admission = plane.admission
        if (
            not isinstance(decided, Decided)
            or known.header_bytes + len(target) > plane.limits.header_bytes
            or way.crowded
            or (admission is not None and admission.bounds(decided.route))
        ):
            return False
        return self._answer(way, head, known, decided, began, started)

    def _answer(
        self, way: Way, head: Head, known: Known, decided: Decided, began: int, started: int
    ) -> bool:
        sink = self._keeper.plane.sink
        told = head.request_id if known.named else None
        request_id = new_request_id() if told is None else told.decode("ascii")
        # the client's own, which every proxy passes on: linked, never continued
        trace = sink.begin(head.traceparent, trusted=False)
        looked_up, now = time.perf_counter_ns(), self._keeper.clock()
        try:
            identity = decided.identity.lines(request_id, trace.traceparent(), now)
        except (GatewayError, ValueError):  # a key that cannot sign: the ordinary way tells
            return False
        answer = b"%b%b%b%b%b\r\n" % (
            STATUS_LINE[200],
            way.default_lines,
            _PRIVATE,
            identity,
            decided.digest_line,
        )
        way.answer(answer, b"")
        sink.record(
            RequestRecord(
                trace=trace,
                request_id=request_id,
                surface=SURFACE,
                method=decided.method,
                route=decided.route,
                audience=decided.audience,
                profile=decided.profile,
                decision="allow",
                status=200,
                code="",
                policy_digest=decided.digest,
                began_ns=began,
                started_ns=started,
                ended_ns=time.perf_counter_ns(),
                stations=_stations(started, looked_up) if trace.sampled else (),
                facts=decided.facts,
                peer=decided.peer,
            )
        )
        return True


def _walked(known: Known, dialect: Dialect, target: bytes, hop: Hop) -> Decided | None:
    """The decision over a target with headers that are known; None where it is not for us."""
    peer, name = known.peer, dialect.target.encode("ascii")
    if peer is None or not dialect.words <= set(peer.headers):
        return None
    headers = [header for header in known.headers if header[0] != name]
    try:
        told = dialects.read(dialect, (*headers, (name, target)), peer)
        address = address_of(told) or known.name[1]
        if told.opens_socket or any(one == delegation.HEADER for one, _ in told.headers):
            return None
        granted, facts = allowed(
            known,
            method=method_of(told),
            path=told.raw_path,
            query=told.query,
            headers=told.headers,
            client=address,
            scheme=told.scheme,
        )
    except Refusal:
        return None
    if granted is None:
        return None
    facts.station = "decide"
    passage = passage_of(granted, told.method, peer)
    return Decided(granted, Identity(hop, passage), facts, address, len(target))


def _stations(started: int, looked_up: int) -> tuple[StationTime, ...]:
    judged = [StationTime(station, looked_up, looked_up) for station in _JUDGED]
    return (StationTime("admit", started, looked_up), *judged)


def lanes_of(keeper: Keeper) -> DecisionLane:
    """All that may be answered beside the application of the data listener."""
    return DecisionLane(keeper, Lane(keeper))
