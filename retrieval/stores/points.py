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
class Candidate:
    """A unit that an index proposes. Nothing here is truth, and the order means nothing.

    ``score`` is the engine's, good to a few 1e-6; ``class_id`` is what the index believes,
    ``-1`` when its label is malformed (missing, a list, another type).
    """

    unit_id: UUID
    score: float
    class_id: int
    revision: int


class CandidateIndex(Protocol):
    """What a search needs of the vector index. Complete down to the cut, ties included."""

    async def dense(
        self, vector: bytes, scope: Scope, *, limit: int, exclude: Collection[UUID] = ()
    ) -> list[Candidate]: ...

    async def sparse(
        self,
        terms: Sequence[int],
        weights: Sequence[float],
        scope: Scope,
        *,
        limit: int,
        exclude: Collection[UUID] = (),
    ) -> list[Candidate]: ...
