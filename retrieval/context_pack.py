"""The context pack, as its caller gets it: units, what is between them, and what is missing.

How one is made is the room `pack/`; what else crosses the border stands in `contract.py`.

Source: seed section 4.4 (the fifteen fields).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field

from retrieval.wire import Address, AppliedScope, Wire


class UnitRef(Wire):
    """A unit in a pack: text, citation and labels (seed 4.4: source, revision, authority, risk).

    A citation is ``(canonical_address, revision)``; nothing else may be cited. ``text`` is the
    whole body of that revision, never a part: the gateway compares its hash. ``readiness``
    tells whoever may read superseded texts which ones are not the current ones.
    """

    unit_id: UUID
    canonical_address: Address
    revision: int
    title: str
    kind: str
    lifecycle_stage: str
    readiness: str
    authority: str
    risk_class: str
    source: str
    text: str
    score: float | None


class LinkRef(Wire):
    """An edge between two units that the caller may both see."""

    relation: str
    from_address: Address
    to_address: Address
    to_title: str
    to_unit_id: UUID
    from_unit_id: UUID
    confidence: float


class Gap(Wire):
    """An artifact this thread is expected to have and that this caller cannot see in it.

    The wording is the same whether nothing exists or something is hidden.
    """

    artifact_id: UUID
    lifecycle_stage: str
    kind: str
    title: str


class SuspectLink(Wire):
    """A membership whose confidence is low or that needs a human; must be surfaced."""

    unit_id: UUID
    canonical_address: Address
    reason: Literal["low_confidence", "needs_human", "wrong_link"]
    confidence: float


class Health(Wire):
    """The last health verdict of a thread, from permitted parts only."""

    status: Literal["healthy", "stale", "overbroad", "too_narrow", "noisy_retrieval", "unknown"]
    checked_at: datetime | None


class ReadingStep(Wire):
    position: int
    canonical_address: Address
    revision: int
    reason: str


class FallbackSignal(Wire):
    """Why no thread stands behind a pack, and how many units of those asked for (``k``) there
    are not: ``shortfall`` is about units that this caller may read, and about no others."""

    reason: Literal["missing_thread", "weak_thread", "raw_requested"]
    shortfall: Annotated[int, Field(ge=0, le=50)] = 0


class Signal(Wire):
    """How much one resolution source contributed to a thread's score."""

    source: Literal["explicit", "keyword", "label", "centroid", "authority"]
    score: float


class Risk(Wire):
    authority: str | None
    risk_class: str | None


class Cut(Wire):
    """That units which this caller may read were left out of a pack, whole ones from the end.

    ``bytes``: the texts would have exceeded ``max_bytes``, which is for the whole answer.
    ``count``: ``k`` or the bounds of a pack. ``omitted_units`` stand in no list of this pack; they
    may be asked for by a larger budget or by their address.
    """

    reason: Literal["bytes", "count"]
    omitted_units: int
    max_bytes: int


class Pack(Wire):
    """The context pack: always all fifteen keys of seed 4.4 (plus id, version and breakdown).

    ``pack_id`` is random, and belongs to this delivery to this caller.
    In fallback ``thread_id``, ``thread_title``, ``purpose`` and ``last_health_status`` are null.
    """

    schema_version: Literal["1"] = "1"
    pack_id: UUID
    thread_id: UUID | None
    thread_title: str | None
    purpose: str | None
    canonical_units: tuple[UnitRef, ...]
    supporting_units: tuple[UnitRef, ...]
    latest_reports: tuple[UnitRef, ...]
    related_design_code_links: tuple[LinkRef, ...]
    known_gaps: tuple[Gap, ...]
    suspect_links: tuple[SuspectLink, ...]
    last_health_status: Health | None
    authority_or_risk_level: Risk
    recommended_reading_order: tuple[ReadingStep, ...]
    source_revisions: dict[str, int]
    audience_scope_applied: AppliedScope
    fallback_signal: FallbackSignal | None
    score: float | None
    signal_breakdown: tuple[Signal, ...]
    cut: Cut | None


FIFTEEN: Final = (
    "thread_id",
    "thread_title",
    "purpose",
    "canonical_units",
    "supporting_units",
    "latest_reports",
    "related_design_code_links",
    "known_gaps",
    "suspect_links",
    "last_health_status",
    "authority_or_risk_level",
    "recommended_reading_order",
    "source_revisions",
    "audience_scope_applied",
    "fallback_signal",
)
"""The seed's minimum fields of a context pack, in its order."""
