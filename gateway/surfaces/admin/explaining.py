"""Why one live unit is readable for one caller, or is not.

The verdict is the one that every other point gives (``Scope.permits``); the explanation is
laid beside it and must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.errors import Code, Refusal
from gateway.surfaces.admin.asked import Answered, Asked
from gateway.surfaces.admin.stores import StoreDown, UnitLabel, UnitLabels
from gateway.surfaces.admin.wire import (
    Caller,
    CompartmentFit,
    ExplainReply,
    ExplainRequest,
    MissedAxis,
    NearRule,
    RuleAt,
)
from policies.decision import SHARED, Scope
from policies.faults import Place
from policies.kinds import AdminAction
from policies.review.explain import Explanation, explain_under
from policies.snapshot import Snapshot

ROUTE: Final = "admin-policy-explain"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitExplanations:
    """Answers ``POST /admin/v1/policy/explain``."""

    labels: UnitLabels
    route: str = ROUTE
    model: type[ExplainRequest] = ExplainRequest
    actions: tuple[AdminAction, ...] = (AdminAction.EXPLAIN_UNIT,)

    def actions_of(self, _: ExplainRequest) -> tuple[AdminAction, ...]:
        return self.actions

    async def answer(self, asked: Asked, request: ExplainRequest) -> Answered:
        """Raises: Refusal ``bad_body`` (no such profile), ``policy_changed`` or
        ``retrieval_unavailable``."""
        snapshot, caller = asked.snapshot, request.caller
        if caller.profile not in snapshot.vocabulary.profiles:
            raise Refusal(Code.BAD_BODY, "caller.profile: not a profile of the policy in force")
        try:
            digest, label = await self.labels.label(request.unit)
        except StoreDown as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, str(error)) from error
        asked.require_enforced(digest)
        told: dict[str, str | int] = {"profile": caller.profile, "consent": caller.consent}
        if label is None:
            return Answered(Refusal(Code.NOT_FOUND, "no such unit"), told | {"unit": "absent"})
        reply = explained(snapshot, label, caller, request_id=asked.request_id)
        told |= {
            "unit": str(label.unit_id),
            "class": label.class_id,
            "verdict": reply.verdict[:200],
        }
        return Answered(reply, told)


def explained(
    snapshot: Snapshot, label: UnitLabel, caller: Caller, *, request_id: str
) -> ExplainReply:
    """The explanation of one label for one caller."""
    compartments = (
        _fit("tenant", label.tenant, caller.tenants),
        _fit("jurisdiction", label.jurisdiction, caller.jurisdictions),
    )
    found = _of_class(snapshot, label.class_id, caller)
    allowed = _permits(snapshot, label, caller)
    misfits = [one.name for one in compartments if not one.fits]
    if allowed is not (found is not None and found.allowed and not misfits):
        raise Refusal(Code.INTERNAL, "an explanation disagrees with the verdict")
    if found is None:
        verdict = "DENY (no class)"
    elif misfits and found.allowed:
        verdict = f"DENY ({', '.join(misfits)})"
    else:
        verdict = found.verdict
    return ExplainReply(
        request_id=request_id,
        policy_digest=snapshot.digest,
        unit_id=label.unit_id,
        class_id=label.class_id,
        state=dict(found.state) if found is not None else None,
        override_until=label.override_until,
        profile=caller.profile,
        consent=caller.consent,
        allowed=allowed,
        class_allowed=found is not None and found.allowed,
        verdict=verdict,
        deciding=tuple(_at(*pair) for pair in found.deciding) if found is not None else (),
        overruled=found.overruled if found is not None else (),
        nearest=_near(found) if found is not None else (),
        compartments=compartments,
    )


def _of_class(snapshot: Snapshot, class_id: int, caller: Caller) -> Explanation | None:
    """None for the class of unlabelled units and for one that no label may have any more."""
    vocabulary = snapshot.vocabulary
    if not 0 <= class_id < vocabulary.class_count or vocabulary.is_retired(class_id):
        return None
    state = vocabulary.facets_of(class_id)
    return explain_under(snapshot, caller.profile, state, caller.consent)


def _permits(snapshot: Snapshot, label: UnitLabel, caller: Caller) -> bool:
    consented = (label.unit_id,) if caller.consent == "granted" else ()
    grant = snapshot.grant((caller.profile,))
    return Scope(grant, caller.tenants, caller.jurisdictions, consented).permits(
        unit_id=label.unit_id,
        class_id=label.class_id,
        tenant=label.tenant,
        jurisdiction=label.jurisdiction,
    )


def _fit(name: str, value: str, own: tuple[str, ...]) -> CompartmentFit:
    fits = value == SHARED or (value != "" and value in own)
    return CompartmentFit(name=name, unit=value, caller=own, fits=fits)


def _at(rule: str, place: Place) -> RuleAt:
    return RuleAt(rule=rule, file=place.file, line=place.line)


def _near(found: Explanation) -> tuple[NearRule, ...]:
    return tuple(
        NearRule(
            rule=_at(near.rule, near.place),
            misses=tuple(
                MissedAxis(axis=miss.axis, asked=miss.asked, accepted=miss.accepted)
                for miss in near.misses
            ),
        )
        for near in found.nearest
    )
