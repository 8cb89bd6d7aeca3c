"""What goes into the vector index and what comes out of it, whatever engine holds it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from policies.decision import Scope


@dataclass(frozen=True, slots=True)
class IndexLabel:
    """Who may find a unit, as the index knows it. ``revision`` is that of its content."""

    unit_id: UUID
    revision: int
    class_id: int
    tenant: str
    jurisdiction: str


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """A unit as the index holds it.

    ``vector`` is the stored form (``embed.quantise``), ``None`` for a unit without one;
    ``terms`` and ``weights`` are the lexical form. No text ever goes to the index.
    """

    label: IndexLabel
    vector: bytes | None
    terms: Sequence[int]
    weights: Sequence[float]


@dataclass(frozen=True, slots=True)
class Held:
    """What the index holds of a unit: its label as stored, ``None`` where malformed."""

    unit_id: UUID
    label: IndexLabel | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit that an index proposes. Nothing here is truth, and the order means nothing.

    ``score`` is the engine's, good to a few 1e-6. Labels stay in the index: whoever reads a
    proposal asks the record of truth for them.
    """

    unit_id: UUID
    score: float


@dataclass(frozen=True, slots=True)
class DenseSearch:
    """By dot product with ``vector``, which is in stored form."""

    vector: bytes
    limit: int


@dataclass(frozen=True, slots=True)
class SparseSearch:
    """By the sum over shared terms of query weight times document weight."""

    terms: Sequence[int]
    weights: Sequence[float]
    limit: int


Search = DenseSearch | SparseSearch


class CandidateIndex(Protocol):
    """What a search needs of the vector index."""

    async def search(
        self, searches: Sequence[Search], scope: Scope, *, exclude: Collection[UUID] = ()
    ) -> list[list[Candidate]]:
        """For each search the ``limit`` best permitted units and all that tie with the last of
        them, in no order. Fewer than ``limit`` means there are no more. Cost: usually one call
        for all of them."""
        ...
