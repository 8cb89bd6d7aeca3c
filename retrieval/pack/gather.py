"""What a pack is made of, read once per request for all of its threads.

Laws
    * Every unit whose address, title or text may be shown went through ``hydrate``: members
      and both ends of every edge. What it refuses is gone from everything here.
    * ``exclude`` (units that the guard refused) counts as never written: no membership, no
      edge, no covered gap comes from it.
    * Nothing is counted for the caller.

Cost: at most seven queries, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.contract import Discrepancy
from retrieval.pack.order import order_key
from retrieval.settings import PackSettings
from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import (
    ArtifactRow,
    EdgeRow,
    MembershipRow,
    PartialRow,
    ThreadRow,
    UnitRow,
)
from retrieval.threads.health import Verdict, combine, with_feedback
from retrieval.threads.parts import permitted_parts


@dataclass(frozen=True, slots=True)
class Member:
    """A permitted unit of a thread, with its link."""

    link: MembershipRow
    unit: UnitRow

    @property
    def wrong(self) -> bool:
        """A link that was declared wrong: shown as suspect, never as part of the thread."""
        return self.link.status == "wrong_link"


@dataclass(frozen=True, slots=True)
class Related:
    """An edge with both of its permitted ends."""

    edge: EdgeRow
    src: UnitRow
    dst: UnitRow


@dataclass(frozen=True, slots=True)
class ThreadMaterial:
    """One thread as this caller sees it; members in pack order."""

    thread: ThreadRow
    members: tuple[Member, ...]
    related: tuple[Related, ...]
    artifacts: tuple[ArtifactRow, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Gathered:
    """Materials in the order asked for, and what hydration refused on the way."""

    materials: tuple[ThreadMaterial, ...]
    discrepancies: tuple[Discrepancy, ...]


async def gather(
    reader: TruthReader,
    threads: Sequence[ThreadRow],
    *,
    exclude: frozenset[UUID],
    settings: PackSettings,
) -> Gathered:
    """The material of some permitted threads, one per thread, in the order given."""
    ids = [thread.id for thread in threads]
    links = _links(await reader.members(ids), exclude, settings.members_max)
    member_ids = {link.unit_id for mine in links.values() for link in mine}
    edges = await permitted_edges(reader, member_ids, exclude=exclude)
    ends = {end for edge in edges for end in (edge.src, edge.dst)}
    hydrated = await reader.hydrate(member_ids | ends, exclude=exclude, offered_by="thread_index")
    parts = await permitted_parts(reader, ids, exclude=exclude)
    feedback = {row.thread_id: row for row in await reader.feedback(ids)}
    artifacts = await reader.artifacts(ids)
    materials = []
    for thread in threads:
        mine = [
            Member(link, hydrated.units[link.unit_id])
            for link in links.get(thread.id, ())
            if link.unit_id in hydrated.units
        ]
        own = frozenset(member.unit.id for member in mine)
        materials.append(
            ThreadMaterial(
                thread=thread,
                members=tuple(sorted(mine, key=lambda member: order_key(member.unit))),
                related=relate(edges, hydrated.units, touching=own),
                artifacts=tuple(one for one in artifacts if one.thread_id == thread.id),
                verdict=with_feedback(verdict_of(thread.id, parts), feedback.get(thread.id)),
            )
        )
    return Gathered(tuple(materials), hydrated.discrepancies)


async def permitted_edges(
    reader: TruthReader, unit_ids: Collection[UUID], *, exclude: frozenset[UUID]
) -> list[EdgeRow]:
    """Edges that touch these units, without those that touch an excluded one."""
    found = await reader.edges(unit_ids) if unit_ids else ()
    return [edge for edge in found if edge.src not in exclude and edge.dst not in exclude]


def relate(
    edges: Sequence[EdgeRow], units: Mapping[UUID, UnitRow], *, touching: Collection[UUID]
) -> tuple[Related, ...]:
    """The edges that touch one of ``touching`` and whose both ends were hydrated."""
    return tuple(
        Related(edge, units[edge.src], units[edge.dst])
        for edge in edges
        if edge.src in units
        and edge.dst in units
        and (edge.src in touching or edge.dst in touching)
    )


def verdict_of(thread_id: UUID, parts: Sequence[PartialRow]) -> Verdict:
    """The health verdict of one thread among the permitted parts of several."""
    return combine(part.health for part in parts if part.thread_id == thread_id)


def _links(
    rows: Sequence[MembershipRow], exclude: frozenset[UUID], members_max: int
) -> dict[UUID, list[MembershipRow]]:
    """The links of each thread; of an oversized one its core first, then by unit id."""
    found: dict[UUID, list[MembershipRow]] = {}
    for row in rows:
        if row.unit_id not in exclude:
            found.setdefault(row.thread_id, []).append(row)
    for thread_id, mine in found.items():
        if len(mine) > members_max:
            mine.sort(key=lambda link: (link.role != "canonical", str(link.unit_id)))
            found[thread_id] = mine[:members_max]
    return found
