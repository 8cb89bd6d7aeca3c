"""The context pack: fifteen keys, always all of them, from what was gathered.

Laws
    * Every text stands under an address and a revision, and ``source_revisions`` names exactly
      the delivered units: nothing else may be cited.
    * The aggregates (authority, risk) are over delivered units only.
    * A text is shown whole or not at all: beyond the budget of bytes whole units are dropped, from
      the end of a fixed order. The gateway compares each text with the hash of its revision.
    * What was left out is said (``cut``), and depends on units that the caller may read alone.

Source: seed section 4.4. This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from policies.thresholds import Thresholds
from retrieval.context_pack import Cut, FallbackSignal, Pack, Risk, Signal, UnitRef
from retrieval.contract import Governed, Response, SubjectWire
from retrieval.fallback.candidates import Hit
from retrieval.pack import annotate
from retrieval.pack.gather import Related, ThreadMaterial
from retrieval.pack.order import (
    ranked_order,
    reading_order,
    recency_key,
    strictest_risk,
    strongest_authority,
)
from retrieval.settings import PackSettings
from retrieval.stores.rows import UnitRow


@dataclass(frozen=True, slots=True)
class Resolved:
    """Why a thread was chosen: its score in [0, 1] and what contributed to it."""

    score: float
    signals: tuple[Signal, ...]


class Budget:
    """Bytes of text that an answer may still hold. Once a unit does not fit, none does."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max: Final = bytes_max
        self._left = bytes_max

    @property
    def spent(self) -> bool:
        """Whether a unit was left out for want of bytes."""
        return self._left < 0

    def take(self, units: Iterable[UnitRow]) -> Iterator[UnitRow]:
        for unit in units:
            if not self.spent:
                self._left -= len(unit.body.encode("utf-8", "surrogatepass"))
            if self.spent:
                return
            yield unit


def thread_pack(
    material: ThreadMaterial,
    resolved: Resolved,
    *,
    subject: SubjectWire,
    k: int,
    settings: PackSettings,
    thresholds: Thresholds,
    budget: Budget,
    pack_id: UUID,
) -> Pack:
    """The pack of one thread; ``k`` bounds its core units, ``budget`` is that of the answer."""
    sound = [member for member in material.members if not member.wrong]
    core = [m.unit for m in sound if m.link.role == "canonical"]
    second = [m.unit for m in sound if m.link.role == "supporting"]
    reports = sorted(
        (m.unit for m in sound if m.link.role == "report" or _is_report(m.unit)), key=recency_key
    )
    canonical_units = _refs(budget.take(core[:k]))
    supporting_units = _refs(budget.take(second[: settings.supporting_max]))
    latest_reports = _refs(budget.take(reports[: settings.reports_max]))
    delivered = _distinct(canonical_units, supporting_units, latest_reports)
    return Pack(
        pack_id=pack_id,
        thread_id=material.thread.id,
        thread_title=material.thread.title,
        purpose=material.thread.purpose,
        canonical_units=canonical_units,
        supporting_units=supporting_units,
        latest_reports=latest_reports,
        related_design_code_links=annotate.related_links(
            material.related, delivered=delivered.keys(), links_max=settings.links_max
        ),
        known_gaps=annotate.known_gaps(
            material.artifacts, material.members, gaps_max=settings.gaps_max
        ),
        suspect_links=annotate.suspect_links(
            material.members,
            thresholds=thresholds,
            suspects_max=settings.suspects_max,
        ),
        last_health_status=annotate.health_of(material.verdict),
        authority_or_risk_level=_risk(delivered.values()),
        recommended_reading_order=reading_order(canonical_units, supporting_units, latest_reports),
        source_revisions=_revisions(delivered.values()),
        audience_scope_applied=annotate.applied_scope(subject),
        fallback_signal=None,
        score=resolved.score,
        signal_breakdown=resolved.signals,
        cut=_cut({one.unit.id for one in sound} - delivered.keys(), budget),
    )


def fallback_pack(
    ranked: Sequence[Hit],
    related: Sequence[Related],
    signal: FallbackSignal,
    *,
    subject: SubjectWire,
    settings: PackSettings,
    budget: Budget,
    pack_id: UUID,
) -> Pack:
    """The ad-hoc pack of ranked units that no thread stands behind, best first."""
    kept = list(budget.take(one.unit for one in ranked))
    scores = {one.unit.id: one.score for one in ranked}
    canonical_units = tuple(_ref(unit, scores[unit.id]) for unit in kept)
    reports = sorted((unit for unit in kept if _is_report(unit)), key=recency_key)
    by_id = {ref.unit_id: ref for ref in canonical_units}
    latest_reports = tuple(by_id[unit.id] for unit in reports[: settings.reports_max])
    return Pack(
        pack_id=pack_id,
        thread_id=None,
        thread_title=None,
        purpose=None,
        canonical_units=canonical_units,
        supporting_units=(),
        latest_reports=latest_reports,
        related_design_code_links=annotate.related_links(
            related, delivered=by_id.keys(), links_max=settings.links_max
        ),
        known_gaps=(),
        suspect_links=(),
        last_health_status=None,
        authority_or_risk_level=_risk(by_id.values()),
        recommended_reading_order=ranked_order(canonical_units),
        source_revisions=_revisions(by_id.values()),
        audience_scope_applied=annotate.applied_scope(subject),
        fallback_signal=signal,
        score=None,
        signal_breakdown=(),
        cut=_cut({one.unit.id for one in ranked} - by_id.keys(), budget),
    )


def unit_ref(unit: UnitRow) -> UnitRef:
    """A unit as it is shown when asked for by address: no score."""
    return _ref(unit, None)


def governed_of(response: Response) -> tuple[Governed, ...]:
    """Every governed object that stands in a response, each once, sorted by sort and id."""
    units: set[UUID] = set()
    threads: set[UUID] = set()
    artifacts: set[UUID] = set()
    for pack in response.packs:
        if pack.thread_id is not None:
            threads.add(pack.thread_id)
        for shown in (pack.canonical_units, pack.supporting_units, pack.latest_reports):
            units.update(unit.unit_id for unit in shown)
        for link in pack.related_design_code_links:
            units.update((link.from_unit_id, link.to_unit_id))
        units.update(suspect.unit_id for suspect in pack.suspect_links)
        artifacts.update(gap.artifact_id for gap in pack.known_gaps)
    return (
        *(Governed(id=one, sort="artifact") for one in sorted(artifacts)),
        *(Governed(id=one, sort="thread") for one in sorted(threads)),
        *(Governed(id=one, sort="unit") for one in sorted(units)),
    )


def _ref(unit: UnitRow, score: float | None) -> UnitRef:
    return UnitRef(
        unit_id=unit.id,
        canonical_address=unit.canonical_address,
        revision=unit.revision,
        title=unit.title,
        kind=unit.facets.kind,
        lifecycle_stage=unit.lifecycle_stage,
        readiness=unit.facets.readiness,
        authority=unit.facets.authority,
        risk_class=unit.facets.risk_class,
        source=unit.source,
        text=unit.body,
        score=score,
    )


def _refs(units: Iterable[UnitRow]) -> tuple[UnitRef, ...]:
    return tuple(_ref(unit, None) for unit in units)


def _cut(omitted: Collection[UUID], budget: Budget) -> Cut | None:
    """That units which the caller may read were left out; their number is the caller's to know."""
    if not omitted:
        return None
    return Cut(
        reason="bytes" if budget.spent else "count",
        omitted_units=len(omitted),
        max_bytes=budget.bytes_max,
    )


def _distinct(*lists: Sequence[UnitRef]) -> dict[UUID, UnitRef]:
    return {unit.unit_id: unit for units in lists for unit in units}


def _is_report(unit: UnitRow) -> bool:
    return unit.lifecycle_stage == "report" or unit.facets.kind == "report"


def _risk(units: Iterable[UnitRef]) -> Risk:
    delivered = list(units)
    return Risk(authority=strongest_authority(delivered), risk_class=strictest_risk(delivered))


def _revisions(units: Iterable[UnitRef]) -> dict[str, int]:
    """Sorted by address, so that equal contents are equal bytes."""
    return dict(sorted((unit.canonical_address, unit.revision) for unit in units))
