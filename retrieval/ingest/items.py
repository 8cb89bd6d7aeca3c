"""What a record becomes: the objects to store, each with its label and its place.

A *stored label* keeps a facet's word as the source has it when the word is not ours: the
database then finds no class for it (-1) and lists it. ``None`` is a blank that the unit's
threads may fill; it is only ever written where a record says ``inherit``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from retrieval.ingest.report import Reason, Sort


@dataclass(frozen=True, slots=True)
class StoredLabel:
    """What is written into the label columns. ``reasons`` is empty for a good label."""

    facets: Mapping[str, str | None]
    lifecycle_stage: str
    tenant: str
    jurisdiction: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class UnitItem:
    """A unit. ``label`` None = the source says nothing about it: the stored one is kept."""

    place: str
    address: str
    title: str
    body: str
    language: str
    source: str
    active_at: datetime | None
    label: StoredLabel | None


@dataclass(frozen=True, slots=True)
class ThreadItem:
    place: str
    address: str
    title: str
    aliases: tuple[str, ...]
    description: str
    purpose: str
    status: str
    label: StoredLabel


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A term of the controlled vocabulary, its other names, and what carries it (addresses)."""

    place: str
    term: str
    version: int
    aliases: tuple[str, ...]
    label: StoredLabel
    units: tuple[str, ...]
    threads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArtifactItem:
    """What ``thread`` (address) is expected to hold one day."""

    place: str
    thread: str
    title: str
    label: StoredLabel


@dataclass(frozen=True, slots=True)
class MembershipItem:
    """``status`` None = the source does not judge the link: a reviewer's word stays."""

    place: str
    thread: str
    unit: str
    role: str
    confidence: float
    status: str | None
    added_by: str


@dataclass(frozen=True, slots=True)
class EdgeItem:
    place: str
    source: str
    target: str
    relation: str
    confidence: float


@dataclass(frozen=True, slots=True)
class DeletionItem:
    """A unit (address) that is to be a tombstone from now on."""

    place: str
    address: str


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """What a record that cannot be stored says of the label of a unit, a thread or a term that may
    be stored already: its content stays as it is, and nobody reads on for a mistake in it."""

    sort: Sort
    ident: UUID
    label: StoredLabel


@dataclass(frozen=True, slots=True)
class DocumentItem:
    """How a document points to others of its source (addresses), known when all were read.

    ``anchor`` is its first unit; ``absorbs`` are threads whose units support this one.
    """

    place: str
    address: str
    thread: str
    anchor: str
    absorbs: tuple[str, ...]
    links: Mapping[str, tuple[str, ...]]
    superseded: bool


Item = (
    UnitItem
    | ThreadItem
    | LabelItem
    | ArtifactItem
    | MembershipItem
    | EdgeItem
    | DeletionItem
    | RefusedItem
    | DocumentItem
    | Reason
)
"""A ``Reason`` is a record (or section) of which nothing can be stored."""
