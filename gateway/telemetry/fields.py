"""What may be said about a request, as one closed list: the only way data reaches a sink.

Laws
    * An attribute that is not in ``REQUEST`` or ``EVENT`` cannot leave (``checked``).
    * A value is a word of ours, a number or an opaque id. No free text of a caller, no path,
      no query, no address, no title, no content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.decisions.facts import Facts
from gateway.journal.event import SecurityEvent
from gateway.telemetry.trace import TraceContext

Value = str | int | bool | Sequence[str] | Sequence[int]

REQUEST: Final = frozenset(
    {
        "http.request.method",
        "http.response.status_code",
        "gateway.request_id",
        "gateway.route",
        "gateway.surface",
        "gateway.audience",
        "gateway.profile",
        "gateway.decision",
        "gateway.code",
        "gateway.reason",
        "gateway.policy_digest",
    }
)
EVENT: Final = frozenset(
    {
        "gateway.event_id",
        "gateway.request_id",
        "gateway.audience",
        "gateway.profile",
        "gateway.route",
        "gateway.unit_ids",
        "gateway.unit_count",
        "gateway.class_ids",
        "gateway.layer",
        "gateway.policy_digest",
        "gateway.action",
        "gateway.severity",
    }
)
STATION: Final = frozenset({"duration_us"})

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


class StationTime(NamedTuple):
    """How long one station took. Both ends in nanoseconds of ``time.perf_counter_ns``."""

    station: str
    started_ns: int
    ended_ns: int


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One finished (or refused) request, as its stations left it.

    Made once, read by sinks and changed by none; a frozen one takes twice the time to make.
    ``began_ns`` is the wall clock (``time.time_ns``) and ``started_ns``/``ended_ns`` are
    ``time.perf_counter_ns`` of the same request. ``route`` is the id of the matched route
    (empty: none matched), ``code`` the stable error code (empty: none), ``decision``
    ``allow`` or ``deny``. ``reason`` is a word of ``gateway.reasons`` (empty: refused for what
    its code says, or not at all), ``issuer`` what a refused credential names, for the decision
    log only, where it can be masked. ``event`` is set when the journal holds one for this request.
    ``facts`` are for the decision log; no span and no line of the access log reads them.
    """

    trace: TraceContext
    request_id: str
    surface: str
    method: str
    route: str
    audience: str
    profile: str
    decision: str
    status: int
    code: str
    policy_digest: str
    began_ns: int
    started_ns: int
    ended_ns: int
    stations: tuple[StationTime, ...] = ()
    reason: str = ""
    issuer: str = ""
    event: SecurityEvent | None = None
    facts: Facts = field(default_factory=Facts)
    bytes_in: int = 0
    bytes_out: int = 0
    peer: str = ""

    @property
    def duration_ns(self) -> int:
        return max(0, self.ended_ns - self.started_ns)


def method_word(method: str) -> str:
    """The method when it is a known one, else ``_OTHER``: callers choose no attribute value."""
    return method if method in _METHODS else "_OTHER"


def checked(fields: Mapping[str, Value], permitted: frozenset[str]) -> dict[str, Value]:
    """The same fields, or ValueError when one is not in the list: a defect, never data."""
    if not fields.keys() <= permitted:
        raise ValueError(f"`{sorted(fields.keys() - permitted)}` may not leave in telemetry")
    return dict(fields)


def of_request(record: RequestRecord) -> dict[str, Value]:
    """The attributes of the request's span and of its line in the access log."""
    return checked(
        {
            "http.request.method": method_word(record.method),
            "http.response.status_code": record.status,
            "gateway.request_id": record.request_id,
            "gateway.route": record.route,
            "gateway.surface": record.surface,
            "gateway.audience": record.audience,
            "gateway.profile": record.profile,
            "gateway.decision": record.decision,
            "gateway.code": record.code,
            "gateway.reason": record.reason,
            "gateway.policy_digest": record.policy_digest,
        },
        REQUEST,
    )


def of_event(event: SecurityEvent) -> dict[str, Value]:
    """The attributes of a security event, equal in the span event and in the log record."""
    return checked(
        {
            "gateway.event_id": str(event.event_id),
            "gateway.request_id": event.request_id,
            "gateway.audience": event.audience,
            "gateway.profile": event.profile,
            "gateway.route": event.route,
            "gateway.unit_ids": tuple(map(str, event.unit_ids)),
            "gateway.unit_count": event.unit_count,
            "gateway.class_ids": event.class_ids,
            "gateway.layer": event.layer,
            "gateway.policy_digest": event.policy_digest,
            "gateway.action": event.action.value,
            "gateway.severity": event.severity,
        },
        EVENT,
    )
