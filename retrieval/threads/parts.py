"""The parts that a caller's aggregates of threads are made of, also when the guard refused units.

Law: a unit in ``exclude`` counts as never written. Stored parts may still hold it (its label was
changed behind the registry's back); then they are made anew from the units that are left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import PartialRow, UnitRow


async def permitted_parts(
    reader: TruthReader, thread_ids: Collection[UUID], *, exclude: frozenset[UUID]
) -> Sequence[PartialRow]:
    """The permitted parts of these threads, without excluded units.

    Cost: one query; with exclusions the members' bodies as well, which is the rare case.
    """
    stored = await reader.partials(thread_ids)
    if not exclude:
        return stored
    links = [link for link in await reader.members(thread_ids) if link.status != "wrong_link"]
    hydrated = await reader.hydrate(
        {link.unit_id for link in links}, exclude=exclude, offered_by="thread_index"
    )
    left: dict[tuple[UUID, int], list[UnitRow]] = {}
    for link in links:
        unit = hydrated.units.get(link.unit_id)
        if unit is not None:
            left.setdefault((link.thread_id, unit.class_id), []).append(unit)
    return [
        replace(
            part,
            unit_count=len(units),
            stages=frozenset(unit.lifecycle_stage for unit in units),
            last_activity=max(unit.active_at for unit in units),
        )
        for part in stored
        if (units := left.get((part.thread_id, part.class_id)))
    ]
