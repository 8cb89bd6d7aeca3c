"""Requests that are like one that was judged a moment ago, answered without a task.

Laws
    * Only the ordinary way reads, authenticates and refuses. Here a request is looked up by its
      bytes; what is found counts while the same policy is in force, the same keys verify, the
      credential is not over, and its upstream is where it was. Anything else goes the ordinary way.
    * Every request is sent on in its own name, with ids and a signature of its own.
    * What is answered here is a body that is whole and small. Everything else, failures included,
      is handed over together with what is under way, so that its rules stand in one place.
    * Every request is recorded once, with what the ordinary way would record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gateway.app import DataPlane
from gateway.authn import delegation
from gateway.authn.bearer import bearer_of
from gateway.fastpath.course import walked
from gateway.fastpath.crossing import Crossing
from gateway.fastpath.head import Head, read
from gateway.fastpath.memory import KNOWN_S, Known, Memory, Name
from gateway.ingress.provenance import new_request_id, trusted_peer
from gateway.ingress.shortcut import Way
from gateway.stations import Granted

_OWN: Final = frozenset({b"authorization", b"traceparent", b"x-request-id"})
"""Read before and never sent on: nothing of them need be kept."""
_FORBIDDEN: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"http2-settings"}
    | {b"trailer", b"te", delegation.HEADER}
)


class Lane:
    """Answers what it knows beside a data plane. For one loop."""

    def __init__(self, plane: DataPlane, *, clock: Callable[[], float] = time.time) -> None:
        self.plane = plane
        self.memory = Memory(clock=clock)
        self._clock = clock

    def take(self, way: Way, data: bytes) -> bool:
        """See `shortcut.Lane`. Cost: about 5 us when it is not taken."""
        head = read(data)
        if head is None:
            return False
        plane, memory = self.plane, self.memory
        name = memory.name(head.block, way.peer)
        known = memory.get(name)
        now = self._clock()
        if known is None or not self._counts(known, now):
            way.lesson = Lesson(self, name, head, way.scheme)
            return False
        course = known.courses.get(head.line)
        if course is None:
            course = walked(known, head.line, plane.hop)
            if course is None:
                return False
            memory.add(known, head.line, course)
        admission = plane.admission
        if (
            not course.apt
            or course.target_bytes > plane.limits.target_bytes
            or way.crowded
            or (admission is not None and admission.bounds(course.route))
        ):
            return False
        loan = plane.hop.lend(course.outline)
        if loan is None:
            return False
        told = head.request_id if known.named else None
        crossing = Crossing(
            self.plane.sink,
            way,
            course,
            loan,
            data,
            request_id=new_request_id() if told is None else told.decode("ascii"),
            trace=plane.sink.begin(head.traceparent, trusted=known.peer is not None),
        )
        return crossing.start(now)

    def _counts(self, known: Known, now: float) -> bool:
        plane = self.plane
        limits, snapshots = plane.limits, plane.snapshots
        return (
            snapshots.ready
            and known.snapshot is snapshots.current
            and known.until > now
            and known.generation == plane.authenticator.generation
            and known.header_bytes <= limits.header_bytes
            and known.header_count <= limits.header_count
        )

    def learn(self, lesson: Lesson, granted: Granted) -> None:
        """Remember a header block that the ordinary way has just let pass."""
        identified = granted.placed.identified
        matched = identified.matched
        admitted, snapshot = matched.admitted, matched.snapshot
        headers, now = admitted.headers, self._clock()
        if not _apt(headers, lesson):
            return
        until = now + KNOWN_S
        token = bearer_of(headers)
        if token is not None:
            authenticator = self.plane.authenticator
            until = min(until, authenticator.believed_until(token, digest=snapshot.digest))
        if until <= now:
            return
        peer = trusted_peer(admitted.client, snapshot.trusted_peers)
        kept = tuple([header for header in headers if header[0] not in _OWN])
        self.memory.put(
            Known(
                name=lesson.name,
                snapshot=snapshot,
                generation=self.plane.authenticator.generation,
                until=until,
                principal=identified.principal,
                headers=kept,
                scheme=admitted.scheme,
                peer=peer,
                named=peer is not None and "x-request-id" in peer.headers,
                header_bytes=sum([len(name) + len(value) + 4 for name, value in headers]),
                header_count=len(headers),
                size=1_024 + sum([len(name) + len(value) + 150 for name, value in kept]),
            )
        )


class Lesson:
    """Bytes that may be remembered once it is known how they were judged."""

    __slots__ = ("_lane", "name", "request_ids", "scheme", "traceparents")

    def __init__(self, lane: Lane, name: Name, head: Head, scheme: str) -> None:
        self.name = name
        self.traceparents = 0 if head.traceparent is None else 1
        self.request_ids = 0 if head.request_id is None else 1
        self.scheme = scheme
        self._lane: Lane | None = lane

    def void(self) -> None:
        """See `shortcut.Lesson`."""
        self._lane = None

    def learn(self, granted: Granted) -> None:
        """The request was allowed like this."""
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.learn(self, granted)


def _apt(headers: tuple[tuple[bytes, bytes], ...], lesson: Lesson) -> bool:
    """Whether the next request with this block can be answered without its headers being read."""
    traceparents = request_ids = 0
    for name, value in headers:
        if name in _FORBIDDEN or (name == b"connection" and value.lower() != b"keep-alive"):
            return False
        traceparents += name == b"traceparent"
        request_ids += name == b"x-request-id"
    return (traceparents, request_ids) == (lesson.traceparents, lesson.request_ids)
