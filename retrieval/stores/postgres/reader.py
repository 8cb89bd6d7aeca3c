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

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from policies.decision import Grant, Scope
from retrieval.contract import Discrepancy
from retrieval.stores.postgres import statements
from retrieval.stores.postgres.reads import by_id, frequencies, storable
from retrieval.stores.postgres.thread_reads import ThreadReads
from retrieval.stores.rows import (
    DeliveryRow,
    EdgeRow,
    Evidence,
    Facets,
    Frequencies,
    Hydrated,
    Judged,
    Layer,
    LexicalRow,
    UnitRow,
)


class PostgresReader(ThreadReads):
    """``ports.TruthReader`` over one connection."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        scope: Scope,
        *,
        own: Grant,
        lag_objective_s: float,
    ) -> None:
        super().__init__(connection, scope, own=own)
        self._lag_objective_s = lag_objective_s
        self._units: dict[UUID, UnitRow] = {}

    # --- units ----------------------------------------------------------------------------

    async def hydrate(
        self,
        unit_ids: Collection[UUID],
        *,
        exclude: frozenset[UUID] = frozenset(),
        offered_by: Layer = "vector_index",
    ) -> Hydrated:
        """See ``ports.TruthReader.hydrate``. ``offered_by`` names the index that gave the ids."""
        wanted = by_id(set(unit_ids) - exclude)
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
        asked = by_id(set(unit_ids) - exclude)
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
        if not storable(address):
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
        rows = await self._rows(statements.CURRENT, ids=by_id(unit_ids))
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
        if not all(storable(text) for text in (address, label) if text):
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
        rows = await self._rows(statements.DELIVERIES, ids=by_id(set(pack_ids)), subject=subject_id)
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
        return permitted, (*(self._leaked[unit_id] for unit_id in by_id(leaked)), *refused)

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
        return frequencies(await self._rows(statements.LEXICAL_STATISTICS, terms=list(terms)))

    async def edges(self, unit_ids: Collection[UUID]) -> Sequence[EdgeRow]:
        """See ``ports.TruthReader.edges``."""
        return [EdgeRow(*row) for row in await self._rows(statements.EDGES, ids=list(unit_ids))]


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
    pack_id, query_id, audience, profile, mode, query_hmac, thread_id, delivered_at = head
    return DeliveryRow(
        pack_id=pack_id,
        query_id=query_id,
        audience=audience,
        profile=profile,
        mode=mode,
        query_hmac=query_hmac,
        thread_id=thread_id,
        delivered_at=delivered_at,
        units=dict(zip(addresses, zip(unit_ids, revisions, strict=True), strict=True)),
        suspect_ids=tuple(suspect_ids),
        gap_ids=tuple(gap_ids),
    )
