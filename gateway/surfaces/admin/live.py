"""How much of what is live a change of policy touches.

Laws
    * Numbers come from a login that sees no id; ids come from a read under the operator's own
      profile, and each is judged once more against the label registry before it is told.
    * No purpose is named, so no consent opens anything here.
    * An id that the second judgement refuses is an event like any other, and is withheld.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from gateway.egress.registry import Registered, Registry, RegistryUnavailable
from gateway.errors import Code, Refusal
from gateway.journal.event import (
    EventAction,
    EventKind,
    Journal,
    JournalUnavailable,
    SecurityEvent,
)
from gateway.placement import denied
from gateway.reasons import Why
from gateway.surfaces.admin.asked import Answered, Asked
from gateway.surfaces.admin.stores import Counted, LiveCounts, StoreDown
from gateway.surfaces.admin.wire import LiveProfile, LiveReply, LiveRequest, Mode, Touched
from policies.decision import Scope
from policies.kinds import AdminAction
from policies.snapshot import Snapshot
from policies.subject import Principal
from retrieval.contract import SubjectWire

ROUTE: Final = "admin-policy-live"
IDS_MAX: Final = 100
"""How many ids stand in one list of an answer."""

_ONE_BY_ONE: Final = "agent"


class Sight(Protocol):
    """What one placed subject may read, by row-level security."""

    async def units_of_classes(
        self, subject: SubjectWire, classes: Sequence[Sequence[int]], *, limit: int
    ) -> Sequence[Sequence[UUID]]:
        """For each list of classes the ids of units with one of them, by id, at most ``limit``.

        Raises: Refusal ``policy_changed`` or ``retrieval_unavailable``.
        """
        ...


def bucket(number: int) -> str:
    """The order of magnitude of a number: ``0``, ``1-9``, ``10-99``, ``100-999``."""
    if number <= 0:
        return "0"
    low = 10 ** (len(str(number)) - 1)
    return f"{low}-{low * 10 - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNumbers:
    """Answers ``POST /admin/v1/policy/live``."""

    counts: LiveCounts
    sight: Sight
    registry: Registry
    journal: Journal
    route: str = ROUTE
    model: type[LiveRequest] = LiveRequest
    actions: tuple[AdminAction, ...] = (
        AdminAction.LIVE_BUCKETED,
        AdminAction.LIVE_COUNTS,
        AdminAction.LIVE_IDS,
    )

    def actions_of(self, request: LiveRequest) -> tuple[AdminAction, ...]:
        return request.mode.actions

    async def answer(self, asked: Asked, request: LiveRequest) -> Answered:
        """Raises: Refusal ``bad_body`` (a profile twice), ``no_audience``, ``policy_changed``,
        ``retrieval_unavailable`` or ``journal_unavailable``."""
        if len({change.profile for change in request.changes}) < len(request.changes):
            raise Refusal(Code.BAD_BODY, "changes: a profile stands twice")
        sides = [side for one in request.changes for side in (one.gained, one.lost)]
        counted = await self._counted(asked, sides)
        ids: Sequence[Sequence[UUID]] = [()] * len(sides)
        if request.mode is Mode.IDS:
            ids = await self._ids(asked, sides)
        touched = [
            _touched(request.mode, classes, counted, found)
            for classes, found in zip(sides, ids, strict=True)
        ]
        profiles = tuple(
            LiveProfile(profile=one.profile, gained=touched[2 * at], lost=touched[2 * at + 1])
            for at, one in enumerate(request.changes)
        )
        told = {
            "mode": request.mode.value,
            "profiles": len(profiles),
            "classes": len({class_id for side in sides for class_id in side}),
            "units": sum(counted.units.values()),
            "threads": sum(counted.threads.values()),
            "ids": len({one for side in touched for one in side.ids or ()}),
        }
        reply = LiveReply(
            request_id=asked.request_id,
            mode=request.mode,
            digest=request.digest,
            live_digest=asked.snapshot.digest,
            profiles=profiles,
        )
        return Answered(reply, told, request.digest)

    async def _counted(self, asked: Asked, sides: Sequence[Sequence[int]]) -> Counted:
        try:
            counted = await self.counts.count({one for side in sides for one in side})
        except StoreDown as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, str(error)) from error
        asked.require_enforced(counted.digest)
        return counted

    async def _ids(self, asked: Asked, sides: Sequence[Sequence[int]]) -> list[list[UUID]]:
        subject, scope = placed(asked.snapshot, asked.principal)
        wanted = [at for at, side in enumerate(sides) if side]
        seen = await self.sight.units_of_classes(
            subject, [sides[at] for at in wanted], limit=IDS_MAX + 1
        )
        permitted = await self._judged(asked, scope, {one for found in seen for one in found})
        found: list[list[UUID]] = [[] for _ in sides]
        for at, ids in zip(wanted, seen, strict=True):
            found[at] = [one for one in ids if one in permitted]
        return found

    async def _judged(self, asked: Asked, scope: Scope, ids: set[UUID]) -> set[UUID]:
        """Those ids that the registry's labels permit, too; the others are an event."""
        try:
            registered = await self.registry.look_up(
                [("unit", one) for one in ids], subject_id=asked.principal.subject_id, purpose=""
            )
        except RegistryUnavailable as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, str(error)) from error
        asked.require_enforced(registered.digest)
        permitted, leaked = _judged(scope, registered)
        if leaked:
            await self._event(asked, scope, leaked)
        return permitted

    async def _event(self, asked: Asked, scope: Scope, leaked: Mapping[UUID, int]) -> None:
        event = SecurityEvent.about(
            leaked.items(),
            kind=EventKind.WRONG_AUDIENCE_RESULT,
            action=EventAction.WITHHELD,
            request_id=asked.request_id,
            trace_id=asked.trace_id,
            audience=scope.grant.profile,
            profile=scope.grant.profile,
            subject_id=asked.principal.subject_id,
            route=ROUTE,
            layers=["row_level_security"],
            policy_digest=asked.snapshot.digest,
        )
        try:
            await self.journal.record(event)
        except JournalUnavailable as error:
            raise Refusal(Code.JOURNAL_UNAVAILABLE, str(error)) from error


def placed(snapshot: Snapshot, principal: Principal) -> tuple[SubjectWire, Scope]:
    """The operator as the reader that it is anyway, without any purpose.

    Raises: Refusal ``no_audience`` (an agent has no profile outside a route), or
    ``ambiguous_audience``.
    """
    decision = snapshot.place(principal.issuer, principal.claims)
    if not decision.allowed:
        ambiguous = decision.reason == "ambiguous_audience"
        raise denied(Code.AMBIGUOUS_AUDIENCE if ambiguous else Code.NO_AUDIENCE, decision)
    if decision.value == _ONE_BY_ONE:
        raise Refusal(Code.NO_AUDIENCE, "agents have no tool here", why=Why.NO_TOOL)
    subject = SubjectWire(
        subject_id=principal.subject_id,
        audience=decision.value,
        profiles=(decision.value,),
        tenants=principal.tenants,
        jurisdictions=principal.jurisdictions,
        task_scope="",
        purpose="",
        policy_digest=snapshot.digest,
    )
    grant = snapshot.grant((decision.value,))
    return subject, Scope(grant, principal.tenants, principal.jurisdictions, ())


def _judged(scope: Scope, registered: Registered) -> tuple[set[UUID], dict[UUID, int]]:
    permitted: set[UUID] = set()
    leaked: dict[UUID, int] = {}
    for (_, unit_id), label in registered.labels.items():
        if scope.permits(
            unit_id=unit_id,
            class_id=label.class_id,
            tenant=label.tenant,
            jurisdiction=label.jurisdiction,
        ):
            permitted.add(unit_id)
        else:
            leaked[unit_id] = label.class_id
    return permitted, leaked


def _touched(mode: Mode, classes: Sequence[int], counted: Counted, ids: Sequence[UUID]) -> Touched:
    units = sum(counted.units.get(one, 0) for one in set(classes))
    threads = sum(counted.threads.get(one, 0) for one in set(classes))
    if mode is Mode.BUCKETED:
        return Touched(units=bucket(units), threads=bucket(threads))
    if mode is Mode.COUNTS:
        return Touched(units=units, threads=threads)
    shown = tuple(ids[:IDS_MAX])
    return Touched(units=units, threads=threads, ids=shown, more=len(ids) > IDS_MAX)
