"""Reads for one caller, in one transaction that ``truth`` opened and will close.

Laws
    * Three layers stand behind a body: row-level security, the bound predicate, and
      ``Scope.permits`` in this process. A row that one lets through and another refuses is a
      discrepancy (units) or ends the request (threads, artifacts); it is never shown.
    * Row-level security enforces the caller's own profile, the other two also what narrows it.
      A row that only the narrowing refuses is no leak: it is left out, and that is all.
    * One transaction sees one moment: what was read of a unit or thread is not asked for again.
    * What the truth refused is told apart only for the operators: the class and the age of an
      open index update, from a function that knows nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, LiteralString
from uuid import UUID

from psycopg import AsyncConnection

from policies.decision import Grant, Scope
from policies.emit.postgres import predicate
from retrieval.contract import Discrepancy
from retrieval.errors import Store, StoreUnavailable
from retrieval.stores.postgres import statements
from retrieval.stores.postgres.arrays import array_literal
from retrieval.stores.postgres.failures import mapped
from retrieval.stores.rows import (
    ArtifactRow,
    DeliveryRow,
    EdgeRow,
    Evidence,
    Facets,
    Frequencies,
    Hydrated,
    Judged,
    Layer,
    LexicalRow,
    MembershipRow,
    PartialRow,
    TermMatch,
    ThreadRow,
    UnitRow,
)

STAGES: Final = ("law", "design", "code", "test", "report", "incident", "other")
"""Lifecycle stages by the position of their bit in a partial."""

_INT: Final = attrgetter("int")


class PostgresReader:
    """``ports.TruthReader`` over one connection."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        scope: Scope,
        *,
        own: Grant,
        lag_objective_s: float,
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._enforced = replace(scope, grant=own)
        self._lag_objective_s = lag_objective_s
        self._bound = _bound(scope)
        self._leaked: dict[UUID, Discrepancy] = {}
        self._units: dict[UUID, UnitRow] = {}
        self._members: dict[UUID, list[MembershipRow]] = {}
        self._partials: dict[UUID, list[PartialRow]] = {}

    @property
    def scope(self) -> Scope:
        """See ``ports.TruthReader.scope``."""
        return self._scope

    @property
    def leaked(self) -> Collection[Discrepancy]:
        """See ``ports.TruthReader.leaked``."""
        return self._leaked.values()

    # --- units ----------------------------------------------------------------------------

    async def hydrate(
        self,
        unit_ids: Collection[UUID],
        *,
        exclude: frozenset[UUID] = frozenset(),
        offered_by: Layer = "vector_index",
    ) -> Hydrated:
        """See ``ports.TruthReader.hydrate``. ``offered_by`` names the index that gave the ids."""
        wanted = _ordered(set(unit_ids) - exclude)
        asked = [unit_id for unit_id in wanted if unit_id not in self._units]
        rows = await self._rows(statements.HYDRATE, ids=asked) if asked else []
        permitted, discrepancies = await self._judged(rows, asked, offered_by)
        self._units |= {row[0]: _unit(row) for row in permitted}
        return Hydrated(
            units={unit_id: self._units[unit_id] for unit_id in wanted if unit_id in self._units},
            discrepancies=discrepancies,
        )

    async def judge(
        self, unit_ids: Collection[UUID], *, model: str, exclude: frozenset[UUID] = frozenset()
    ) -> Judged:
        """See ``ports.TruthReader.judge``."""
        asked = _ordered(set(unit_ids) - exclude)
        # binary: a third of the time, and every weight is the float32 that was stored
        rows = (
            await self._rows(statements.JUDGE, binary=True, ids=asked, model=model) if asked else []
        )
        permitted, discrepancies = await self._judged(rows, asked, "vector_index")
        return Judged(
            units={
                row[0]: Evidence(vector, LexicalRow(tuple(terms), tuple(weights)))
                for *row, vector, terms, weights in permitted
            },
            discrepancies=discrepancies,
        )

    async def unit_by_address(self, address: str) -> UnitRow | None:
        """See ``ports.TruthReader.unit_by_address``."""
        if not _storable(address):
            return None
        rows = await self._rows(statements.UNIT_BY_ADDRESS, address=address)
        if not rows:
            return None
        hydrated = await self.hydrate([rows[0][0]], offered_by="hydrate")
        return hydrated.units.get(rows[0][0])

    async def units_of_classes(self, classes: Collection[int], *, limit: int) -> Sequence[UUID]:
        """See ``ports.TruthReader.units_of_classes``."""
        rows = await self._rows(statements.OF_CLASSES, classes=sorted(classes), limit=limit)
        for row in rows:
            self._require(*row)
        return [row[0] for row in rows]

    async def current_revisions(self, unit_ids: Collection[UUID]) -> Mapping[UUID, int]:
        """See ``ports.TruthReader.current_revisions``."""
        found: dict[UUID, int] = {}
        rows = await self._rows(statements.CURRENT, ids=_ordered(unit_ids))
        for unit_id, class_id, tenant, jurisdiction, passed, revision in rows:
            if passed:
                self._require(unit_id, class_id, tenant, jurisdiction)
                found[unit_id] = revision
            else:
                self._leak(unit_id, class_id, tenant, jurisdiction)
        return found

    async def units_after(
        self,
        address: str,
        *,
        limit: int,
        kind: str | None = None,
        lifecycle_stage: str | None = None,
        label: str | None = None,
    ) -> Sequence[UUID]:
        """See ``ports.TruthReader.units_after``."""
        if not all(_storable(text) for text in (address, label) if text):
            return []
        rows = await self._rows(
            statements.AFTER,
            address=address,
            kind=kind,
            stage=lifecycle_stage,
            label=label,
            limit=limit,
        )
        return [row[0] for row in rows]

    async def deliveries(
        self, pack_ids: Collection[UUID], *, subject_id: str
    ) -> Mapping[UUID, DeliveryRow]:
        """See ``ports.TruthReader.deliveries``."""
        rows = await self._rows(
            statements.DELIVERIES, ids=_ordered(set(pack_ids)), subject=subject_id
        )
        return {row[0]: _delivery(row) for row in rows}

    async def _judged(
        self, rows: Sequence[tuple[Any, ...]], asked: Sequence[UUID], layer: Layer
    ) -> tuple[list[tuple[Any, ...]], tuple[Discrepancy, ...]]:
        """The rows that all layers permit, and a discrepancy for each other id that was asked.

        A row begins with id, class, tenant, jurisdiction and the predicate's verdict.
        """
        permitted: list[tuple[Any, ...]] = []
        leaked: list[UUID] = []
        for row in rows:
            unit_id, class_id, tenant, jurisdiction, passed = row[:5]
            if passed and self._scope.permits(
                unit_id=unit_id, class_id=class_id, tenant=tenant, jurisdiction=jurisdiction
            ):
                permitted.append(row)
            elif self._leak(unit_id, class_id, tenant, jurisdiction):
                leaked.append(unit_id)
        seen = {row[0] for row in permitted}.union(leaked)
        refused = await self._refused([u for u in asked if u not in seen], layer)
        return permitted, (*(self._leaked[unit_id] for unit_id in _ordered(leaked)), *refused)

    async def _refused(self, unit_ids: Sequence[UUID], layer: Layer) -> list[Discrepancy]:
        if not unit_ids:
            return []
        return [
            Discrepancy(
                unit_id=unit_id,
                class_id=class_id,
                layer=layer,
                pending=age_s is not None and age_s <= self._lag_objective_s,
            )
            for unit_id, class_id, age_s in await self._rows(statements.REFUSED, ids=unit_ids)
        ]

    async def lexical_statistics(self, terms: Collection[int]) -> Frequencies:
        """See ``ports.TruthReader.lexical_statistics``."""
        return _frequencies(await self._rows(statements.LEXICAL_STATISTICS, terms=list(terms)))

    async def edges(self, unit_ids: Collection[UUID]) -> Sequence[EdgeRow]:
        """See ``ports.TruthReader.edges``."""
        return [EdgeRow(*row) for row in await self._rows(statements.EDGES, ids=list(unit_ids))]

    # --- threads --------------------------------------------------------------------------

    async def thread_by_reference(self, reference: str) -> ThreadRow | None:
        """See ``ports.TruthReader.thread_by_reference``."""
        if not _storable(reference):
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
        return _frequencies(await self._rows(statements.THREAD_FREQUENCIES, terms=list(terms)))

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
        return [member for one in _ordered(set(thread_ids)) for member in self._members[one]]

    async def artifacts(self, thread_id: UUID) -> Sequence[ArtifactRow]:
        """See ``ports.TruthReader.artifacts``."""
        found = [ArtifactRow(*row) for row in await self._rows(statements.ARTIFACTS, id=thread_id)]
        for artifact in found:
            self._require(artifact.id, artifact.class_id, artifact.tenant, artifact.jurisdiction)
        return found

    async def partials(self, thread_ids: Collection[UUID]) -> Sequence[PartialRow]:
        """See ``ports.TruthReader.partials``."""
        asked = [thread_id for thread_id in thread_ids if thread_id not in self._partials]
        rows = await self._rows(statements.PARTIALS, ids=asked) if asked else []
        self._partials |= {thread_id: [] for thread_id in asked}
        for thread, class_id, tenant, jurisdiction, count, bits, last, health in rows:
            self._partials[thread].append(
                PartialRow(
                    thread, class_id, tenant, jurisdiction, count, _stages(bits), last, health
                )
            )
        return [part for one in _ordered(set(thread_ids)) for part in self._partials[one]]

    # --- inside ---------------------------------------------------------------------------

    async def _rows(
        self, statement: LiteralString, *, binary: bool = False, **values: object
    ) -> list[tuple[Any, ...]]:
        with mapped():
            bound = {
                name: array_literal(one) if isinstance(one, list) else one
                for name, one in values.items()
            }
            cursor = await self._connection.execute(
                statement, {**self._bound, **bound}, binary=binary
            )
            return await cursor.fetchall()

    def _leak(self, unit_id: UUID, class_id: int, tenant: str, jurisdiction: str) -> bool:
        """Whether a refused row is one that row-level security should have kept; then noted."""
        if self._enforced.permits(
            unit_id=unit_id, class_id=class_id, tenant=tenant, jurisdiction=jurisdiction
        ):
            return False
        self._leaked[unit_id] = Discrepancy(
            unit_id=unit_id,
            class_id=class_id,
            layer="row_level_security",
            pending=False,
        )
        return True

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

    def _require(self, object_id: UUID, class_id: int, tenant: str, jurisdiction: str) -> None:
        """The third layer, where a row cannot simply be left out: both others let it through."""
        if not self._scope.permits(
            unit_id=object_id, class_id=class_id, tenant=tenant, jurisdiction=jurisdiction
        ):
            raise StoreUnavailable(
                Store.POSTGRES, "a row was returned that the scope does not permit"
            )


@lru_cache(maxsize=256)
def _bound(scope: Scope) -> Mapping[str, str]:
    """The emitted values as array literals, made once a scope: lists would be adapted element
    by element, hundreds of integers for every statement."""
    return {name: array_literal(values) for name, values in predicate(scope, "u").params.items()}


def _ordered(unit_ids: Iterable[UUID]) -> list[UUID]:
    """By id. Comparing ids one by one takes ten times as long."""
    return sorted(unit_ids, key=_INT)


def _unit(row: Sequence[Any]) -> UnitRow:
    unit_id, class_id, tenant, jurisdiction = row[:4]
    revision, stage, language, source, active_at, address, title, body = row[11:]
    return UnitRow(
        id=unit_id,
        canonical_address=address,
        revision=revision,
        title=title,
        body=body,
        class_id=class_id,
        tenant=tenant,
        jurisdiction=jurisdiction,
        facets=Facets(*row[5:11]),
        lifecycle_stage=stage,
        language=language,
        source=source,
        active_at=active_at,
    )


def _delivery(row: Sequence[Any]) -> DeliveryRow:
    *head, unit_ids, addresses, revisions, suspect_ids, gap_ids = row
    pack_id, query_id, mode, query_hmac, thread_id, delivered_at = head
    return DeliveryRow(
        pack_id=pack_id,
        query_id=query_id,
        mode=mode,
        query_hmac=query_hmac,
        thread_id=thread_id,
        delivered_at=delivered_at,
        units=dict(zip(addresses, zip(unit_ids, revisions, strict=True), strict=True)),
        suspect_ids=tuple(suspect_ids),
        gap_ids=tuple(gap_ids),
    )


def _frequencies(rows: Sequence[tuple[Any, ...]]) -> Frequencies:
    counted = dict(rows)
    documents = counted.pop(None, 0)
    return Frequencies(
        documents=documents, by_term={term: df for term, df in counted.items() if df > 0}
    )


def _stages(bits: int) -> frozenset[str]:
    return frozenset(stage for place, stage in enumerate(STAGES) if bits >> place & 1)


def _storable(text: str) -> bool:
    """Whether Postgres can hold this text at all; what it cannot hold, it does not have."""
    try:
        return "\x00" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False
