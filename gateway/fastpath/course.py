"""Where a request line leads, with headers that are known: the stations between, walked once.

The same functions decide here as in the ordinary way, under the same snapshot. What they refuse is
not remembered: it is refused, and recorded, in the ordinary way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway import stations
from gateway.app import PUBLISHED
from gateway.decisions.facts import Facts
from gateway.errors import Headers, Refusal
from gateway.fastpath.head import target_of
from gateway.fastpath.memory import Known
from gateway.relay.hop import Hop, Outline
from gateway.routes.wishes import Wish
from gateway.stations import Granted, Identified
from gateway.telemetry.trace import TraceContext
from policies.bindings import RouteMode
from policies.decision import Decision

_OURS: Final = b"/-/"
_NOBODYS: Final = TraceContext(0, 0, sampled=False)
_OVERHEAD_BYTES: Final = 4_096
"""What the objects of one course take, roughly; its texts come on top: the line, its path, and the
segments of that, each of which is an object."""
_SEGMENT_BYTES: Final = 60


class Course:
    """One decided request, whatever its ids: how it is asked and what is recorded of it."""

    __slots__ = (
        "apt",
        "audience",
        "digest",
        "digest_line",
        "facts",
        "granted",
        "outline",
        "profile",
        "route",
        "size",
        "target_bytes",
    )

    def __init__(self, granted: Granted, outline: Outline, facts: Facts, target_bytes: int) -> None:
        placed = granted.placed
        matched = placed.identified.matched
        self.apt = True
        """Whether its answers are of the sort that is given beside the application."""
        self.granted = granted
        self.outline = outline
        self.facts = facts
        self.route = matched.route.id
        self.audience = placed.subject.audience
        self.profile = placed.subject.grant.profile
        self.digest = matched.snapshot.digest
        self.digest_line = b"x-policy-digest: %b\r\n" % self.digest.encode("ascii")
        self.target_bytes = target_bytes
        segments = _SEGMENT_BYTES * len(matched.admitted.segments)
        self.size = _OVERHEAD_BYTES + 3 * target_bytes + segments + outline.size

    def left_at(self, station: str) -> Facts:
        """What is recorded of a request whose caller left after this station."""
        return replace(self.facts, station=station)


def walked(known: Known, line: bytes, hop: Hop) -> Course | None:
    """The course of a request line; None where it is not for us to answer."""
    target = target_of(line)
    if target is None or target[0].startswith(_OURS) or target[0] in PUBLISHED:
        return None
    try:
        granted, facts = allowed(
            known,
            method="GET",
            path=target[0],
            query=target[1],
            headers=known.headers,
            client=known.name[1],
            scheme=known.scheme,
        )
        if granted is None:
            return None
        outline = hop.outline(stations.passage_of(granted))
    except Refusal:
        return None
    return Course(granted, outline, facts, len(line) - len(b"GET  HTTP/1.1"))


def allowed(
    known: Known,
    *,
    method: str,
    path: bytes,
    query: bytes,
    headers: Headers,
    client: str,
    scheme: str,
) -> tuple[Granted | None, Facts]:
    """Stations *admit* to *decide*, less the authentication, which is what is known; None on a
    route whose answers are looked into. Raises: Refusal."""
    admitted = stations.admit(
        {
            "method": method,
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "client": (client, 0),
            "scheme": scheme,
        },
        request_id="",
        trace=_NOBODYS,
        ends_at=0.0,
    )
    facts = Facts(station="inspect", snapshot=known.snapshot)
    matched = stations.match(admitted, known.snapshot)
    if matched.route.mode is not RouteMode.OPAQUE:
        return None, facts
    facts.identified, facts.principal, facts.wish = True, known.principal, Wish()
    identified = Identified(matched, known.principal, None)
    decisions: list[Decision] = facts.decisions
    placed = stations.place(identified, facts.wish, decisions.append)
    facts.subject = placed.subject
    return stations.decide(placed, decisions.append), facts
