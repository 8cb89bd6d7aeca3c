"""What a security event is: the one row that a request may leave behind in the journal.

Laws
    * Opaque ids, classes, a digest and a layer; never content, an address or a query.
    * One event per request. It names at most ``UNIT_IDS_MAX`` units, and counts all of them.
    * Security events are not quality signals: nothing here is ever aggregated into one.

This module does not know Postgres, OpenTelemetry or HTTP.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID, uuid4

from gateway.journal.contract import Breaches

UNIT_IDS_MAX: Final = 50
"""How many unit ids one event names; the rest are in ``unit_count`` only."""

_WORD: Final = re.compile(r"[a-z][a-z0-9_.:+-]{0,199}")
_TRACE: Final = re.compile(r"[0-9a-f]{32}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_OPAQUE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class EventKind(StrEnum):
    """Every kind of security event there is."""

    WRONG_AUDIENCE_RESULT = "wrong_audience_result"
    STALE_INDEX = "stale_index"
    LABEL_WIDENED = "label_widened"

    @property
    def severity(self) -> str:
        """``critical`` for a unit that the policy denies; ``warning`` for a late index, and for
        a label that was opened to somebody."""
        return "critical" if self is EventKind.WRONG_AUDIENCE_RESULT else "warning"


class EventAction(StrEnum):
    """What the caller got: the answer without the units, or no answer. ``approved`` is no
    caller's: somebody (or a trusted mapping) let a label open; the database writes that event."""

    WITHHELD = "withheld"
    REFUSED = "refused"
    APPROVED = "approved"


class JournalError(Exception):
    """Base of what the journal raises. A caller that sees one must refuse the request."""


class JournalUnavailable(JournalError):
    """The event could not be made durable: nothing of the response may leave."""


class InvalidEvent(JournalError):
    """An event was to be made of something that must not stand in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityEvent:
    """One row of ``gate.security_event``, less the time, which the database's clock gives.

    ``unit_ids`` and ``class_ids`` are sorted and without doubles; ``unit_count`` counts the
    units before the cap. ``trace_id`` is 32 lower-case hex digits, ``policy_digest`` 64.
    ``layer`` is the one that let the units through, several joined by ``+``. ``route`` is
    the id of the matched route, never a path.
    """

    event_id: UUID
    kind: EventKind
    action: EventAction
    request_id: str
    trace_id: str
    audience: str
    profile: str
    subject_hash: str
    route: str
    unit_ids: tuple[UUID, ...]
    unit_count: int
    class_ids: tuple[int, ...]
    layer: str
    policy_digest: str

    def __post_init__(self) -> None:
        if not 1 <= len(self.unit_ids) <= UNIT_IDS_MAX or self.unit_count < len(self.unit_ids):
            raise InvalidEvent("an event names 1 to 50 units and counts no fewer than it names")
        for name, form in _FORMS.items():
            if not form.fullmatch(getattr(self, name)):
                raise InvalidEvent(f"`{name}` of an event has a form that no event may have")

    @property
    def severity(self) -> str:
        return self.kind.severity

    @classmethod
    def about(
        cls,
        units: Iterable[tuple[UUID, int]],
        *,
        kind: EventKind,
        action: EventAction,
        request_id: str,
        trace_id: str,
        audience: str,
        profile: str,
        subject_id: str,
        route: str,
        layers: Iterable[str],
        policy_digest: str,
    ) -> SecurityEvent:
        """The event of one request about ``(unit id, class id)`` pairs, capped and counted.

        The caller's ``subject_id`` is hashed here, so that no row names a person.

        Raises: InvalidEvent for no unit, or for a value that an event may not hold.
        """
        classes = dict(units)
        named = sorted(classes)[:UNIT_IDS_MAX]
        return cls(
            event_id=uuid4(),
            kind=kind,
            action=action,
            request_id=request_id,
            trace_id=trace_id,
            audience=audience,
            profile=profile,
            subject_hash=hashlib.sha256(subject_id.encode()).hexdigest(),
            route=route,
            unit_ids=tuple(named),
            unit_count=len(classes),
            class_ids=tuple(sorted({classes[unit_id] for unit_id in named})),
            layer="+".join(sorted(set(layers))),
            policy_digest=policy_digest,
        )


_FORMS: Final = {
    "request_id": _OPAQUE,
    "trace_id": _TRACE,
    "audience": _WORD,
    "profile": _WORD,
    "subject_hash": _DIGEST,
    "route": _OPAQUE,
    "layer": _WORD,
    "policy_digest": _DIGEST,
}


class Journal(Protocol):
    """Where security events are made durable."""

    async def record(self, event: SecurityEvent) -> None:
        """Return once the event, its escalations and its contract-log row are on disk.

        Recording the same event twice is the same as once.

        Raises: JournalUnavailable; then nothing of the response may leave.
        """
        ...

    async def record_breaches(self, breaches: Breaches) -> None:
        """Return once breaches of the consumer contract are on disk.

        Raises: JournalUnavailable; then nothing of the response may leave.
        """
        ...
