"""What every read for one caller rests on: bound values, the third layer, and the note of leaks."""

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
from retrieval.stores.postgres.arrays import array_literal
from retrieval.stores.postgres.failures import mapped
from retrieval.stores.rows import Frequencies

_INT: Final = attrgetter("int")


class Reads:
    """Reads of one scope over one connection; ``own`` is the grant that the database enforces."""

    def __init__(self, connection: AsyncConnection[Any], scope: Scope, *, own: Grant) -> None:
        self._connection = connection
        self._scope = scope
        self._enforced = replace(scope, grant=own)
        self._bound = _bound(scope)
        self._leaked: dict[UUID, Discrepancy] = {}

    @property
    def scope(self) -> Scope:
        """See ``ports.TruthReader.scope``."""
        return self._scope

    @property
    def leaked(self) -> Collection[Discrepancy]:
        """See ``ports.TruthReader.leaked``."""
        return self._leaked.values()

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


def by_id(unit_ids: Iterable[UUID]) -> list[UUID]:
    """By id. Comparing ids one by one takes ten times as long."""
    return sorted(unit_ids, key=_INT)


def frequencies(rows: Sequence[tuple[Any, ...]]) -> Frequencies:
    counted = dict(rows)
    documents = counted.pop(None, 0)
    return Frequencies(
        documents=documents, by_term={term: df for term, df in counted.items() if df > 0}
    )


def storable(text: str) -> bool:
    """Whether Postgres can hold this text at all; what it cannot hold, it does not have."""
    try:
        return "\x00" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False
