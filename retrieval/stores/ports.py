"""The record of truth as the rest of retrieval sees it.

Laws
    * Every answer is already cut to the caller's scope; nothing here returns a hidden object,
      counts one, or lets one change a number.
    * There is one way to a body: ``TruthReader.hydrate`` (``unit_by_address`` goes through it).
    * One reader is one transaction: all of its answers are of one moment.
    * A store that does not answer raises ``StoreUnavailable``; it never answers less.

A reader is used by one task at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import UUID

from policies.decision import Scope
from policies.snapshot import Snapshot
from retrieval.contract import Discrepancy, SubjectWire
from retrieval.stores.rows import (
    ArtifactRow,
    CentroidPart,
    DeliveryRow,
    EdgeRow,
    FeedbackRow,
    Frequencies,
    Hydrated,
    Judged,
    LabelMatch,
    Layer,
    MembershipRow,
    MemberVector,
    PartialRow,
    TermMatch,
    ThreadRow,
    UnitRow,
)


class TruthReader(Protocol):
    """What one caller may read, at one moment."""

    @property
    def scope(self) -> Scope:
        """The caller's scope, with the consents that were live when the reader was opened."""
        ...

    @property
    def leaked(self) -> Collection[Discrepancy]:
        """Units that row-level security let through to this reader and its predicate refused."""
        ...

    async def hydrate(
        self,
        unit_ids: Collection[UUID],
        *,
        exclude: frozenset[UUID] = frozenset(),
        offered_by: Layer = "vector_index",
    ) -> Hydrated:
        """The permitted units among these, and a discrepancy for each of the others.

        Ids in ``exclude`` are treated as if they had never existed: neither. ``offered_by``
        names the index that the ids came from. Cost: one query, a second one only when
        something was refused.
        """
        ...

    async def judge(
        self, unit_ids: Collection[UUID], *, model: str, exclude: frozenset[UUID] = frozenset()
    ) -> Judged:
        """As ``hydrate``, for units that only compete: what their current revisions are scored
        by instead of their texts. ``model`` names the embedder of the vectors wanted."""
        ...

    async def unit_by_address(self, address: str) -> UnitRow | None:
        """A permitted unit, or None for hidden and absent alike."""
        ...

    async def units_of_classes(self, classes: Collection[int], *, limit: int) -> Sequence[UUID]:
        """The ids of permitted units of these classes, in order of id, ``limit`` at most."""
        ...

    async def current_revisions(self, unit_ids: Collection[UUID]) -> Mapping[UUID, int]:
        """The latest revision of each permitted unit among these."""
        ...

    async def units_after(
        self,
        address: str,
        *,
        limit: int,
        kind: str | None = None,
        lifecycle_stage: str | None = None,
        label: str | None = None,
    ) -> Sequence[UUID]:
        """The ids of the next permitted units behind this address (empty: the first ones), by
        canonical address, byte by byte; each filter that is given narrows."""
        ...

    async def deliveries(
        self, pack_ids: Collection[UUID], *, subject_id: str
    ) -> Mapping[UUID, DeliveryRow]:
        """Those of these packs that were delivered to this subject, which must be the caller."""
        ...

    async def thread_by_reference(self, reference: str) -> ThreadRow | None:
        """A permitted thread by id or canonical address, or None for hidden and absent alike."""
        ...

    async def threads_for_terms(self, terms: Collection[int]) -> Sequence[TermMatch]:
        """The permitted active threads that have any of these terms, by thread id."""
        ...

    async def thread_document_frequencies(self, terms: Collection[int]) -> Frequencies:
        """How many permitted active threads there are, and how many have each term."""
        ...

    async def members(self, thread_ids: Collection[UUID]) -> Sequence[MembershipRow]:
        """Links of these threads to permitted units, by thread and unit id."""
        ...

    async def edges(self, unit_ids: Collection[UUID]) -> Sequence[EdgeRow]:
        """Edges that touch one of these units and whose both ends are permitted, by id."""
        ...

    async def artifacts(self, thread_ids: Collection[UUID]) -> Sequence[ArtifactRow]:
        """Permitted expected artifacts of these threads, by thread, lifecycle stage and title."""
        ...

    async def threads(self, thread_ids: Collection[UUID]) -> Mapping[UUID, ThreadRow]:
        """The permitted active threads among these."""
        ...

    async def labelled(self, terms: Collection[int]) -> Sequence[LabelMatch]:
        """The permitted active threads with a permitted label that these terms name, by thread
        and label id."""
        ...

    async def anchored(self, addresses: Collection[str]) -> frozenset[UUID]:
        """The permitted active threads that hold a permitted unit of one of these addresses as a
        core unit."""
        ...

    async def centroid_parts(
        self, model: str, thread_ids: Collection[UUID] | None
    ) -> Sequence[CentroidPart]:
        """The parts of the centroids of these threads (``None``: of all permitted active ones),
        by thread id. Consented units are not in them."""
        ...

    async def centroid_state(self, model: str) -> bytes:
        """A hash of what ``centroid_parts`` would say of all permitted active threads.

        Cost: one query over the parts of these threads: 3 ms for 100 threads of 8 parts each.
        """
        ...

    async def vector_sums(self, parts: Collection[CentroidPart]) -> Mapping[UUID, bytes]:
        """The sums of these parts by key: int64, little-endian."""
        ...

    async def member_vectors(
        self, unit_ids: Collection[UUID], model: str
    ) -> Sequence[MemberVector]:
        """The vectors of the permitted units among these, once for each thread, by thread id."""
        ...

    async def feedback(self, thread_ids: Collection[UUID]) -> Sequence[FeedbackRow]:
        """What the caller's audience found of these permitted threads, by thread id."""
        ...

    async def partials(self, thread_ids: Collection[UUID]) -> Sequence[PartialRow]:
        """Permitted partial sums of these threads; consented units are not in them."""
        ...

    async def lexical_statistics(self, terms: Collection[int]) -> Frequencies:
        """How many permitted units there are, and how many have each term.

        Sums of permitted partials, plus units that only a consent opens, one by one.
        """
        ...


class Truth(Protocol):
    """Opens readers."""

    def reading(
        self, subject: SubjectWire, snapshot: Snapshot
    ) -> AbstractAsyncContextManager[TruthReader]:
        """A reader for one placed subject.

        Raises PolicyMismatch when the database enforces another revision than the subject was
        placed under or has no grant for its profile, StoreUnavailable when it does not answer.
        """
        ...
