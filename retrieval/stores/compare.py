"""Index and record of truth side by side, in the order of ids, a page at a time.

Laws
    * Neither side is ever held whole: a comparison of a million units needs memory for one page.
    * Of each stretch of ids the index is read first, then the truth: what the truth lacks by then
      is gone for good.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeVar
from uuid import UUID

from psycopg import AsyncConnection

from retrieval.stores.points import IndexLabel
from retrieval.stores.qdrant import PAGE, QdrantIndex

# A unit whose current revision is not there has no content to be found by: not live yet.
_LABELS: Final = """
    select u.id, u.current_revision, u.class_id, u.tenant, u.jurisdiction
    from brain.unit u
    join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision
    where u.deleted_at is null and u.id >= %s
    order by u.id limit %s"""
_LAST: Final = UUID(int=(1 << 128) - 1)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stretch:
    """All ids from one to another: what the index holds of them (a label that it cannot have from
    us is ``None``), and the labels of the live units."""

    held: Mapping[UUID, IndexLabel | None]
    truth: Mapping[UUID, IndexLabel]

    def orphans(self) -> list[UUID]:
        """Points without a live unit."""
        return [unit_id for unit_id in self.held if unit_id not in self.truth]

    def differing(self) -> list[UUID]:
        """Live units whose point is missing or says something else."""
        return [one for one, label in self.truth.items() if self.held.get(one) != label]

    def ahead(self) -> list[UUID]:
        """Points of a later revision than the truth has, which no upsert would replace."""
        return [
            unit_id
            for unit_id in self.differing()
            if (known := self.held.get(unit_id)) and known.revision > self.truth[unit_id].revision
        ]


async def stretches(
    connection: AsyncConnection[Any], index: QdrantIndex, *, page: int = PAGE
) -> AsyncIterator[Stretch]:
    """All of both sides. ``connection`` logs in as gw_index; it may be committed between two
    stretches.

    Raises IndexUnavailable. Cost: a scroll over the collection and one look at every unit.
    """
    first: UUID | None = UUID(int=0)
    while first is not None:
        held = {one.unit_id: one.label for one in await index.held_from(first, page)}
        cursor = await connection.execute(_LABELS, (first, page))
        truth = {row[0]: IndexLabel(*row) async for row in cursor}
        ends = [next(reversed(side)) for side in (held, truth) if len(side) == page]
        last = min(ends, default=_LAST)
        yield Stretch(_until(last, held), _until(last, truth))
        first = UUID(int=last.int + 1) if last != _LAST else None


def _until(last: UUID, side: dict[UUID, T]) -> dict[UUID, T]:
    if not side or next(reversed(side)) <= last:
        return side
    return dict(takewhile(lambda one: one[0] <= last, side.items()))
