"""The order in which units stand in a pack, and why each one is to be read.

Source: seed section 4.5: lifecycle stage (law, design, code, test and report, incident), then
authority (enacted, draft, runtime), then recency, then canonical address. The last makes it a
total order: two packs of the same units are the same bytes.

``recommended_reading_order`` reflects it: core units, then supporting ones, then reports that
were not among them.

This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from retrieval.context_pack import ReadingStep, UnitRef
from retrieval.stores.rows import UnitRow

STAGE_ORDER: Final = {
    "law": 0,
    "design": 1,
    "code": 2,
    "test": 3,
    "report": 3,  # the seed names them in one breath: neither comes before the other
    "incident": 4,
    "other": 5,
}
AUTHORITY_ORDER: Final = {"enacted": 0, "draft": 1, "runtime": 2}
RISK_ORDER: Final = {"low": 0, "standard": 1, "high": 2}

OrderKey = tuple[int, int, float, str]


def order_key(unit: UnitRow) -> OrderKey:
    """What units are sorted by; an unknown word comes after all known ones."""
    return (
        STAGE_ORDER.get(unit.lifecycle_stage, len(STAGE_ORDER)),
        AUTHORITY_ORDER.get(unit.facets.authority, len(AUTHORITY_ORDER)),
        -unit.active_at.timestamp(),
        unit.canonical_address,
    )


def recency_key(unit: UnitRow) -> tuple[float, str]:
    """Newest first, ties by address: the order of reports."""
    return (-unit.active_at.timestamp(), unit.canonical_address)


def reading_order(
    core: Sequence[UnitRef], supporting: Sequence[UnitRef], reports: Sequence[UnitRef]
) -> tuple[ReadingStep, ...]:
    """One step per unit of the pack, each unit once, positions from 1."""
    seen: dict[UUID, tuple[UnitRef, str]] = {}
    for unit in core:
        seen.setdefault(unit.unit_id, (unit, f"core: {unit.lifecycle_stage}, {unit.authority}"))
    for unit in supporting:
        reason = f"supporting: {unit.lifecycle_stage}, {unit.authority}"
        seen.setdefault(unit.unit_id, (unit, reason))
    for unit in reports:
        seen.setdefault(unit.unit_id, (unit, "latest report"))
    return _steps(seen.values())


def ranked_order(units: Sequence[UnitRef]) -> tuple[ReadingStep, ...]:
    """The reading order of a pack that no thread stands behind: as ranked."""
    return _steps((unit, f"rank {rank}") for rank, unit in enumerate(units, start=1))


def strongest_authority(units: Iterable[UnitRef]) -> str | None:
    """The authority that comes first among the delivered units; null without units."""
    known = [unit.authority for unit in units if unit.authority in AUTHORITY_ORDER]
    return min(known, key=AUTHORITY_ORDER.__getitem__, default=None)


def strictest_risk(units: Iterable[UnitRef]) -> str | None:
    """The highest risk class among the delivered units; null without units."""
    known = [unit.risk_class for unit in units if unit.risk_class in RISK_ORDER]
    return max(known, key=RISK_ORDER.__getitem__, default=None)


def _steps(reasons: Iterable[tuple[UnitRef, str]]) -> tuple[ReadingStep, ...]:
    return tuple(
        ReadingStep(
            position=position,
            canonical_address=unit.canonical_address,
            revision=unit.revision,
            reason=reason,
        )
        for position, (unit, reason) in enumerate(reasons, start=1)
    )
