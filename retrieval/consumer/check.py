"""Whether an answer keeps the consumer contract: what it cites, and what it must tell of.

Laws
    * A citation is judged against what was delivered to this subject in that pack, then against
      what the subject may read now. Nothing else of the corpus is looked at.
    * An id, an address or a pack that was not delivered is one case, whatever exists.
    * Suspect units and gaps count as delivered, less what may not be seen any more.

Source: seed section 4.13, rules 3 and 5. This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from retrieval.contract import (
    CheckRequest,
    CheckResponse,
    Citation,
    CitationCode,
    Claim,
    ClaimCode,
    ClaimResult,
)
from retrieval.stores.rows import DeliveryRow
from retrieval.wire import AppliedScope

_HELD: Final = frozenset({"valid", "outdated"})
"""Codes of citations that a claim can rest on."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the verdict depends on: the caller's own deliveries and what it may see now.

    ``revisions`` holds the latest revision of each permitted unit, ``gaps`` the permitted gaps.
    """

    deliveries: Mapping[UUID, DeliveryRow]
    revisions: Mapping[UUID, int]
    gaps: Collection[UUID]


def checked(request: CheckRequest, evidence: Evidence, scope: AppliedScope) -> CheckResponse:
    """The verdict on each claim and on the whole, in the order of the request."""
    surfaced = frozenset(request.surfaced)
    suspects = _suspects(request.claims, evidence) - surfaced
    gaps = _gaps(request.claims, evidence) - surfaced
    claims = tuple(_result(claim, evidence, surfaced) for claim in request.claims)
    sound = all(claim.code == "supported" for claim in claims) and not gaps
    return CheckResponse(
        verdict="accepted" if sound else "rejected",
        claims=claims,
        unsurfaced_suspects=tuple(sorted(suspects)),
        unsurfaced_gaps=tuple(sorted(gaps)),
        audience_scope_applied=scope,
    )


def cited_units(request: CheckRequest, deliveries: Mapping[UUID, DeliveryRow]) -> set[UUID]:
    """The delivered units that the claims cite."""
    return {
        shown[0]
        for claim in request.claims
        for one in claim.citations
        if (shown := _shown(one, deliveries)) is not None
    }


def held_units(request: CheckRequest, evidence: Evidence) -> set[UUID]:
    """The cited units that the verdict says something about, other than that they are refused."""
    return {unit_id for claim in request.claims for _, unit_id in _holding(claim, evidence)}


def _shown(one: Citation, deliveries: Mapping[UUID, DeliveryRow]) -> tuple[UUID, int] | None:
    """The unit under that address in that pack, with the revision delivered."""
    delivery = deliveries.get(one.pack_id)
    return delivery.units.get(one.canonical_address) if delivery is not None else None


def _code(one: Citation, evidence: Evidence) -> CitationCode:
    shown = _shown(one, evidence.deliveries)
    if shown is None:
        return "not_delivered"
    unit_id, revision = shown
    latest = evidence.revisions.get(unit_id)
    if latest is None:
        return "not_permitted"
    if one.source_revision != revision:
        return "wrong_revision"
    return "valid" if latest == revision else "outdated"


def _holding(claim: Claim, evidence: Evidence) -> Iterable[tuple[DeliveryRow, UUID]]:
    """The packs and units that a claim can rest on."""
    for one in claim.citations:
        if _code(one, evidence) in _HELD:
            delivery = evidence.deliveries[one.pack_id]
            yield delivery, delivery.units[one.canonical_address][0]


def _doubtful(claim: Claim, evidence: Evidence) -> set[UUID]:
    return {unit for pack, unit in _holding(claim, evidence) if unit in pack.suspect_ids}


def _suspects(claims: Iterable[Claim], evidence: Evidence) -> set[UUID]:
    """Suspect units that unflagged claims rest on."""
    return {unit for one in claims if not one.flagged for unit in _doubtful(one, evidence)}


def _gaps(claims: Iterable[Claim], evidence: Evidence) -> set[UUID]:
    """Gaps of the packs that unflagged claims rest on."""
    packs = {
        pack.pack_id: pack
        for one in claims
        if not one.flagged
        for pack, _ in _holding(one, evidence)
    }
    return {gap for pack in packs.values() for gap in pack.gap_ids if gap in evidence.gaps}


def _result(claim: Claim, evidence: Evidence, surfaced: Collection[UUID]) -> ClaimResult:
    codes = tuple(_code(one, evidence) for one in claim.citations)
    code: ClaimCode = "supported"
    if not codes:
        code = "uncited"
    elif not _HELD.issuperset(codes):
        code = "unsupported"
    elif "outdated" in codes:
        code = "outdated"
    elif not claim.flagged and not _doubtful(claim, evidence) <= frozenset(surfaced):
        code = "suspect"
    return ClaimResult(code=code, citations=codes)
