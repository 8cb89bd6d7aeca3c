"""What a pack says about itself beside its texts: gaps, suspect links, related links, health.

Laws
    * A gap is stated only for an expected artifact that the caller may itself see, in the
      same words whether nothing exists or something is hidden.
    * A link is stated only when both ends are permitted; there is no dangling id.
    * Caps cut at the end of a fixed order and leave no trace.

Source: seed sections 4.4 and 4.6. This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal
from uuid import UUID

from policies.thresholds import Thresholds
from retrieval.context_pack import Gap, Health, LinkRef, SuspectLink
from retrieval.contract import SubjectWire
from retrieval.pack.gather import Member, Related
from retrieval.pack.order import STAGE_ORDER
from retrieval.stores.rows import ArtifactRow, MembershipRow, UnitRow
from retrieval.threads.health import Verdict
from retrieval.wire import AppliedScope

Suspicion = Literal["low_confidence", "needs_human", "wrong_link"]

_DESIGN_CODE: Final = frozenset({"design", "code"})
_ANY_KIND: Final = frozenset({"other", "thread"})
"""Kinds of an artifact that ask for nothing in particular: any unit of the stage fills it."""


def known_gaps(
    artifacts: Iterable[ArtifactRow], members: Sequence[Member], *, gaps_max: int
) -> tuple[Gap, ...]:
    """The artifacts that no permitted member fills, by stage and title.

    A member fills an artifact of its own lifecycle stage and kind, unless its link is wrong.
    """
    present = {(m.unit.lifecycle_stage, m.unit.facets.kind) for m in members if not m.wrong}
    stages = {stage for stage, _ in present}
    missing = [
        artifact
        for artifact in artifacts
        if (artifact.lifecycle_stage, artifact.kind) not in present
        and not (artifact.kind in _ANY_KIND and artifact.lifecycle_stage in stages)
    ]
    missing.sort(key=lambda a: (STAGE_ORDER.get(a.lifecycle_stage, 99), a.title, str(a.id)))
    return tuple(
        Gap(
            artifact_id=artifact.id,
            lifecycle_stage=artifact.lifecycle_stage,
            kind=artifact.kind,
            title=artifact.title,
        )
        for artifact in missing[:gaps_max]
    )


def suspect_links(
    members: Iterable[Member], *, thresholds: Thresholds, suspects_max: int
) -> tuple[SuspectLink, ...]:
    """Memberships that a reader must be warned of, by canonical address."""
    found = []
    for member in members:
        reason = suspicion(member.link, thresholds)
        if reason is not None:
            found.append(
                SuspectLink(
                    unit_id=member.unit.id,
                    canonical_address=member.unit.canonical_address,
                    reason=reason,
                    confidence=confidence(member.link.confidence),
                )
            )
    return tuple(sorted(found, key=lambda s: s.canonical_address)[:suspects_max])


def suspicion(link: MembershipRow, thresholds: Thresholds) -> Suspicion | None:
    """Why a membership is suspect, the gravest reason first; None for a sound one.

    A status that is not known is treated as one that a human must look at. That a link is wrong is
    told for the policy's number of days; then it is no news to anybody.
    """
    if link.status == "wrong_link":
        return "wrong_link" if link.judged_days < thresholds.wrong_link_days else None
    if link.status != "active":
        return "needs_human"
    low = round(confidence(link.confidence) * 100, 2) < thresholds.confidence_percent
    return "low_confidence" if low else None


def related_links(
    related: Iterable[Related], *, delivered: Collection[UUID], links_max: int
) -> tuple[LinkRef, ...]:
    """Edges from a delivered unit to or from design or code, by relation and addresses."""
    found = [
        LinkRef(
            relation=one.edge.relation,
            from_address=one.src.canonical_address,
            to_address=one.dst.canonical_address,
            to_title=one.dst.title,
            to_unit_id=one.dst.id,
            from_unit_id=one.src.id,
            confidence=confidence(one.edge.confidence),
        )
        for one in related
        if (one.src.id in delivered or one.dst.id in delivered)
        and (_is_design_or_code(one.src) or _is_design_or_code(one.dst))
    ]
    found.sort(key=lambda link: (link.relation, link.from_address, link.to_address))
    return tuple(found[:links_max])


def health_of(verdict: Verdict) -> Health:
    return Health(status=verdict.status.value, checked_at=verdict.checked_at)


def applied_scope(subject: SubjectWire) -> AppliedScope:
    """Which filters ran: the subject's own facts, so nothing of the corpus can be in it."""
    return AppliedScope(
        audience=subject.audience,
        profiles=subject.profiles,
        task_scope=subject.task_scope,
        purpose=subject.purpose,
        tenants=subject.tenants,
        jurisdictions=subject.jurisdictions,
        policy_digest=subject.policy_digest,
    )


def confidence(stored: float) -> float:
    """A stored 32-bit confidence as people wrote it (0.3, not 0.30000001192092896)."""
    return round(stored, 4)


def _is_design_or_code(unit: UnitRow) -> bool:
    return unit.lifecycle_stage in _DESIGN_CODE or unit.facets.kind in _DESIGN_CODE
