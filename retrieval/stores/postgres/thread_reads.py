"""Reads of threads: what they are found by, how they stand, and what hangs on them.

Laws
    * One transaction sees one moment: what was read of a thread is not asked for again.
    * A sum is over partials that the caller's grant covers; what a consent alone opens, or what the
      guard refused, is added or taken away unit by unit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from policies.decision import Grant, Scope
from retrieval.stores.postgres import statements
from retrieval.stores.postgres.reads import Reads, by_id, frequencies, storable
from retrieval.stores.rows import (
    ArtifactRow,
    CentroidPart,
    Facets,
    FeedbackRow,
    Frequencies,
    LabelMatch,
    MembershipRow,
    MemberVector,
    PartialRow,
    TermMatch,
    ThreadRow,
)

STAGES: Final = ("law", "design", "code", "test", "report", "incident", "other")
"""Lifecycle stages by the position of their bit in a partial."""


class ThreadReads(Reads):
    """The part of ``ports.TruthReader`` that is about threads."""

    def __init__(self, connection: AsyncConnection[Any], scope: Scope, *, own: Grant) -> None:
        super().__init__(connection, scope, own=own)
        self._members: dict[UUID, list[MembershipRow]] = {}
        self._partials: dict[UUID, list[PartialRow]] = {}
        self._artifacts: dict[UUID, list[ArtifactRow]] = {}
        self._feedback: dict[UUID, FeedbackRow | None] = {}

    async def thread_by_reference(self, reference: str) -> ThreadRow | None:
        """See ``ports.TruthReader.thread_by_reference``."""
        if not storable(reference):
            return None
        try:
            thread_id: UUID | None = UUID(reference)
        except ValueError:
            thread_id = None
        rows = await self._rows(statements.THREAD_BY_REFERENCE, id=thread_id, address=reference)
        return self._thread(rows[0]) if rows else None

    async def threads_for_terms(self, terms: Collection[int]) -> Sequence[TermMatch]:
        """See ``ports.TruthReader.threads_for_terms``."""
        return [
            TermMatch(self._thread(row[:-2]), dict(zip(row[-2], row[-1], strict=True)))
            for row in await self._rows(statements.THREADS_FOR_TERMS, terms=list(terms))
        ]

    async def thread_document_frequencies(self, terms: Collection[int]) -> Frequencies:
        """See ``ports.TruthReader.thread_document_frequencies``."""
        return frequencies(await self._rows(statements.THREAD_FREQUENCIES, terms=list(terms)))

    async def members(self, thread_ids: Collection[UUID]) -> Sequence[MembershipRow]:
        """See ``ports.TruthReader.members``."""
        asked = [thread_id for thread_id in thread_ids if thread_id not in self._members]
        rows = await self._rows(statements.MEMBERS, ids=asked) if asked else []
        self._members |= {thread_id: [] for thread_id in asked}
        for class_id, tenant, jurisdiction, permitted, *row in rows:
            member = MembershipRow(*row)
            if permitted:
                self._members[member.thread_id].append(member)
            else:
                self._leak(member.unit_id, class_id, tenant, jurisdiction)
        return [member for one in by_id(set(thread_ids)) for member in self._members[one]]

    async def artifacts(self, thread_ids: Collection[UUID]) -> Sequence[ArtifactRow]:
        """See ``ports.TruthReader.artifacts``."""
        asked = [thread_id for thread_id in thread_ids if thread_id not in self._artifacts]
        rows = await self._rows(statements.ARTIFACTS, ids=asked) if asked else []
        self._artifacts |= {thread_id: [] for thread_id in asked}
        for row in rows:
            artifact = ArtifactRow(*row)
            self._require(artifact.id, artifact.class_id, artifact.tenant, artifact.jurisdiction)
            self._artifacts[artifact.thread_id].append(artifact)
        return [one for thread in by_id(set(thread_ids)) for one in self._artifacts[thread]]

    async def partials(self, thread_ids: Collection[UUID]) -> Sequence[PartialRow]:
        """See ``ports.TruthReader.partials``."""
        asked = [thread_id for thread_id in thread_ids if thread_id not in self._partials]
        rows = await self._rows(statements.PARTIALS, ids=asked) if asked else []
        self._partials |= {thread_id: [] for thread_id in asked}
        for thread, class_id, kind, authority, count, bits, last, health in rows:
            self._partials[thread].append(
                PartialRow(thread, class_id, kind, authority, count, _stages(bits), last, health)
            )
        return [part for one in by_id(set(thread_ids)) for part in self._partials[one]]

    async def threads(self, thread_ids: Collection[UUID]) -> Mapping[UUID, ThreadRow]:
        """See ``ports.TruthReader.threads``."""
        rows = await self._rows(statements.THREADS, ids=by_id(thread_ids)) if thread_ids else []
        return {row[0]: self._thread(row) for row in rows}

    async def labelled(self, terms: Collection[int]) -> Sequence[LabelMatch]:
        """See ``ports.TruthReader.labelled``."""
        rows = await self._rows(statements.LABELLED, terms=list(terms))
        return [LabelMatch(thread, frozenset(matched)) for thread, matched in rows]

    async def anchored(self, addresses: Collection[str]) -> frozenset[UUID]:
        """See ``ports.TruthReader.anchored``."""
        asked = [address for address in addresses if storable(address)]
        rows = await self._rows(statements.ANCHORED, addresses=asked) if asked else []
        for _, unit_id, class_id, tenant, jurisdiction in rows:
            self._require(unit_id, class_id, tenant, jurisdiction)
        return frozenset(row[0] for row in rows)

    async def centroid_parts(
        self, model: str, thread_ids: Collection[UUID] | None
    ) -> Sequence[CentroidPart]:
        """See ``ports.TruthReader.centroid_parts``."""
        if thread_ids is None:
            rows = await self._rows(statements.CENTROID_PARTS, binary=True, model=model)
        else:
            rows = await self._rows(
                statements.CENTROID_PARTS_OF, binary=True, model=model, ids=by_id(thread_ids)
            )
        return [CentroidPart(*row) for row in rows]

    async def centroid_state(self, model: str) -> bytes:
        """See ``ports.TruthReader.centroid_state``."""
        ((state,),) = await self._rows(statements.CENTROID_STATE, binary=True, model=model)
        return bytes(state)

    async def vector_sums(self, parts: Collection[CentroidPart]) -> Mapping[UUID, bytes]:
        """See ``ports.TruthReader.vector_sums``."""
        ids = by_id({part.thread_id for part in parts})
        keys = by_id({part.key for part in parts if part.key is not None})
        rows = await self._rows(statements.VECTOR_SUMS, binary=True, ids=ids, keys=keys)
        return dict(rows)

    async def member_vectors(
        self, unit_ids: Collection[UUID], model: str
    ) -> Sequence[MemberVector]:
        """See ``ports.TruthReader.member_vectors``."""
        if not unit_ids:
            return []
        rows = await self._rows(
            statements.MEMBER_VECTORS, binary=True, ids=by_id(unit_ids), model=model
        )
        return [MemberVector(*row) for row in rows]

    async def feedback(self, thread_ids: Collection[UUID]) -> Sequence[FeedbackRow]:
        """See ``ports.TruthReader.feedback``."""
        asked = [thread_id for thread_id in thread_ids if thread_id not in self._feedback]
        rows = await self._rows(statements.FEEDBACK, ids=asked) if asked else []
        self._feedback |= dict.fromkeys(asked)
        self._feedback |= {row[0]: FeedbackRow(*row) for row in rows}
        known = (self._feedback[thread_id] for thread_id in by_id(set(thread_ids)))
        return [row for row in known if row is not None]

    def _thread(self, row: Sequence[Any]) -> ThreadRow:
        thread_id, class_id, tenant, jurisdiction = row[:4]
        self._require(thread_id, class_id, tenant, jurisdiction)
        address, title, aliases, description, purpose, status = row[10:]
        return ThreadRow(
            id=thread_id,
            canonical_address=address,
            title=title,
            aliases=tuple(aliases),
            description=description,
            purpose=purpose,
            class_id=class_id,
            tenant=tenant,
            jurisdiction=jurisdiction,
            facets=Facets(*row[4:10]),
            status=status,
        )


def _stages(bits: int) -> frozenset[str]:
    return frozenset(stage for place, stage in enumerate(STAGES) if bits >> place & 1)
