"""What the record of truth gives out: plain values, already checked against the caller's scope.

Facet words are the *effective* ones (a unit's own, blanks filled from its threads), read from
the class registry by class id.

This module knows no SQL and no policy beyond the contract's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from retrieval.contract import Discrepancy

Layer = Literal["vector_index", "lexical_index", "thread_index", "row_level_security", "hydrate"]
"""Who let a unit through that the truth refuses (see ``contract.Discrepancy``)."""


@dataclass(frozen=True, slots=True)
class Facets:
    """The six words of a class."""

    visibility: str
    readiness: str
    publication_state: str
    risk_class: str
    authority: str
    kind: str


@dataclass(frozen=True, slots=True)
class UnitRow:
    """A unit at its current revision, with its body."""

    id: UUID
    canonical_address: str
    revision: int
    title: str
    body: str
    class_id: int
    tenant: str
    jurisdiction: str
    facets: Facets
    lifecycle_stage: str
    language: str
    source: str
    active_at: datetime


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread that the caller may know of."""

    id: UUID
    canonical_address: str
    title: str
    aliases: tuple[str, ...]
    description: str
    purpose: str
    class_id: int
    tenant: str
    jurisdiction: str
    facets: Facets
    status: str


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A permitted thread and the document weights of the asked terms that it has."""

    thread: ThreadRow
    weights: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class MembershipRow:
    """A link between a permitted thread and a permitted unit."""

    thread_id: UUID
    unit_id: UUID
    role: str
    confidence: float
    status: str
    judged_days: int
    """Whole days since its status last changed, by the database's clock."""


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """An edge between two permitted units."""

    id: UUID
    src: UUID
    dst: UUID
    relation: str
    confidence: float


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """Something that a permitted thread should hold one day, itself permitted."""

    id: UUID
    thread_id: UUID
    title: str
    lifecycle_stage: str
    kind: str
    class_id: int
    tenant: str
    jurisdiction: str


@dataclass(frozen=True, slots=True)
class PartialRow:
    """What the units of one permitted key (class, compartments) contribute to a thread.

    ``kind`` and ``authority`` are those of the class, ``stages`` the lifecycle stages present;
    ``health`` is the part's own verdict.
    """

    thread_id: UUID
    class_id: int
    kind: str
    authority: str
    unit_count: int
    stages: frozenset[str]
    last_activity: datetime | None
    health: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A pack that was delivered to the caller; ``revisions`` maps addresses of shown units to
    (id, revision). What it names may be hidden from the caller by now."""

    pack_id: UUID
    query_id: UUID
    audience: str
    profile: str
    mode: str
    query_hmac: str | None
    thread_id: UUID | None
    delivered_at: datetime
    units: Mapping[str, tuple[UUID, int]]
    suspect_ids: tuple[UUID, ...]
    gap_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class FeedbackRow:
    """What enough readers of the caller's own audience found of a thread."""

    thread_id: UUID
    status: str
    checked_at: datetime


@dataclass(frozen=True, slots=True)
class LabelMatch:
    """A permitted thread and the terms of a question that a permitted label of it stands for."""

    thread_id: UUID
    terms: frozenset[int]


@dataclass(frozen=True, slots=True)
class CentroidPart:
    """One permitted part of a thread's centroid. Equal keys name equal sums; ``None`` says that
    the sum is being made anew."""

    thread_id: UUID
    key: UUID | None


@dataclass(frozen=True, slots=True)
class MemberVector:
    """The vector of a permitted unit, for each permitted thread that it is in. ``counted``: the
    sums of partials that this caller may read hold it."""

    thread_id: UUID
    unit_id: UUID
    counted: bool
    vector: bytes


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many permitted documents there are, and in how many each asked term stands.

    A term that none of them has is absent from ``by_term``.
    """

    documents: int
    by_term: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class LexicalRow:
    """The lexical form of a unit's current revision: term ids (sorted) and their weights."""

    terms: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a permitted unit is scored by: its vector in stored form (``None`` when it has none
    of the asked model) and its lexical form. No text."""

    vector: bytes | None
    lexical: LexicalRow


@dataclass(frozen=True, slots=True)
class Judged:
    """Units that may compete, and ids that an index offered and the truth refused."""

    units: Mapping[UUID, Evidence]
    discrepancies: tuple[Discrepancy, ...]


@dataclass(frozen=True, slots=True)
class Hydrated:
    """Bodies that may be shown, and ids that an index offered and the truth refused."""

    units: Mapping[UUID, UnitRow]
    discrepancies: tuple[Discrepancy, ...]
