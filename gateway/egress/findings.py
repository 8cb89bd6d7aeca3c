"""What one request must not have got: noted while it is inspected, told as one event.

A unit is *wrong* (not permitted, or not itself), *stale* (an older revision than the truth holds)
or *doubtful* (refused by retrieval's truth, and permitted here). What each leads to is the guard's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from gateway.egress.registry import Key, Registered
from gateway.egress.tally import Tally
from gateway.journal.event import EventAction, EventKind, SecurityEvent
from policies.decision import UNCLASSED
from policies.subject import Subject
from retrieval.contract import Answer

RESPONSE_LAYER: Final = "response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Which request an event would belong to, and where its units are counted."""

    request_id: str
    trace_id: str
    route: str
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class Found:
    """Units that must not be had: id -> class, and the layers that let each through."""

    classes: dict[UUID, int] = field(default_factory=dict)
    layers: dict[UUID, set[str]] = field(default_factory=dict)

    def add(self, unit_id: UUID, class_id: int, layer: str) -> None:
        self.classes[unit_id] = class_id
        self.layers.setdefault(unit_id, set()).add(layer)

    def forget(self, unit_id: UUID) -> None:
        self.classes.pop(unit_id, None)
        self.layers.pop(unit_id, None)

    def __bool__(self) -> bool:
        return bool(self.classes)


@dataclass(slots=True)
class Findings:
    """What one request must not have got, and what it has to be asked again for."""

    wrong: Found = field(default_factory=Found)
    stale: Found = field(default_factory=Found)
    doubtful: set[UUID] = field(default_factory=set)
    contradicted: bool = False
    event: SecurityEvent | None = None
    consented: set[UUID] = field(default_factory=set)
    written: set[UUID] = field(default_factory=set)

    def note(self, answer: Answer) -> None:
        """Take over what hydration found out about its indexes, and what was written down."""
        if answer.answer_id is not None:
            self.written.add(answer.answer_id)
        for one in answer.discrepancies:
            found = self.stale if one.pending else self.wrong
            found.add(one.unit_id, one.class_id, one.layer)

    def leak(self, denied: Iterable[Key], registered: Registered) -> None:
        """Take over ids that stood in a response and are not permitted."""
        for key in denied:
            label = registered.labels.get(key)
            class_id = label.class_id if label is not None else UNCLASSED
            self.wrong.add(key[1], class_id, RESPONSE_LAYER)

    def behind(self, late: Mapping[UUID, int]) -> None:
        """Take over units that retrieval went on showing in an older revision."""
        for unit_id, class_id in late.items():
            self.stale.add(unit_id, class_id, RESPONSE_LAYER)

    def doubt(self, permitted: Iterable[UUID]) -> None:
        """Judge refused units that are permitted now: in doubt once, a contradiction twice."""
        for unit_id in permitted:
            if unit_id in self.doubtful:
                self.contradicted = True
            else:
                self.doubtful.add(unit_id)
                self.wrong.forget(unit_id)


def count_kept_back(findings: Findings, subject: Subject, occasion: Occasion) -> None:
    """Leave what was kept back to the request's tally, before anything can interrupt."""
    occasion.tally.consented(findings.consented)
    occasion.tally.kept_back(findings.wrong.classes, subject.grant, stale=findings.stale.classes)


def event_of(
    findings: Findings, action: EventAction, subject: Subject, occasion: Occasion
) -> SecurityEvent:
    """The one event of a request that found something: of what is wrong, else of what is stale."""
    found = findings.wrong or findings.stale
    return SecurityEvent.about(
        found.classes.items(),
        kind=EventKind.WRONG_AUDIENCE_RESULT if findings.wrong else EventKind.STALE_INDEX,
        action=action,
        request_id=occasion.request_id,
        trace_id=occasion.trace_id,
        audience=subject.audience,
        profile=subject.grant.profile,
        subject_id=subject.subject_id,
        route=occasion.route,
        layers=set().union(*found.layers.values()),
        policy_digest=subject.grant.digest,
    )
