"""What the operators' surface reads: counts and labels, each by a database role of its own.

Laws
    * ``gw_live`` counts: it sees a class and whether a thing was removed, not even an id.
    * ``gw_guard`` looks one label up: ids, addresses, classes and compartments, no title or text.
    * With every answer comes the revision that the database enforces at that moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from gateway.errors import GatewayError

_COUNT: Final = """
select 'unit', u.class_id, count(*), '' from brain.unit u
 where u.deleted_at is null and u.class_id = any(%(classes)s::smallint[]) group by u.class_id
union all
select 'thread', t.class_id, count(*), '' from brain.thread t
 where t.deleted_at is null and t.class_id = any(%(classes)s::smallint[]) group by t.class_id
union all
select 'revision', 0::smallint, 0, r.digest from gate.active_revision r
"""
_LABEL: Final = """
(select u.id, u.class_id, u.tenant, u.jurisdiction, '', u.override_until from brain.unit u
  where (u.id = %(id)s::uuid or u.canonical_address = %(address)s) and u.deleted_at is null
  order by u.canonical_address = %(address)s desc limit 1)
union all
select null, 0::smallint, '', '', r.digest, null from gate.active_revision r
"""


class StoreDown(GatewayError):
    """The record of truth does not answer: the question has no answer now."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How many live units and threads there are of each class that was asked about."""

    digest: str
    units: Mapping[int, int]
    threads: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class UnitLabel:
    """All of a unit that an explanation needs. ``override_until``: its class is looser than its
    label says until then, by an approved override."""

    unit_id: UUID
    class_id: int
    tenant: str
    jurisdiction: str
    override_until: datetime | None = None


class Station:
    """Single statements under one database role, over a small pool."""

    def __init__(self, conninfo: str, *, name: str, wait_s: float) -> None:
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]] = (
            AsyncConnectionPool(
                conninfo,
                min_size=0,
                max_size=2,
                timeout=wait_s,
                reconnect_timeout=5,  # then the next question tries: no minutes of backing off
                open=False,
                name=name,
                kwargs={"autocommit": True, "options": "-c statement_timeout=5000"},
            )
        )

    async def open(self) -> None:
        """Begin to connect; a database that is down shows at the first question."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close()

    async def rows(self, query: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The rows of one statement. Raises: StoreDown."""
        try:
            try:
                return await self._rows(query, values)
            except PoolTimeout:  # an OperationalError too: nobody answers, a second wait is none
                raise
            except psycopg.OperationalError:
                await self._pool.check()  # a kept connection that a restart of the server cut
                return await self._rows(query, values)
        except (psycopg.Error, PoolTimeout, OSError) as error:
            raise StoreDown(type(error).__name__) from error

    async def _rows(self, query: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        async with self._pool.connection() as connection:
            return await (await connection.execute(query.encode(), values)).fetchall()


class LiveCounts(Station):
    """Counts of what is live, under ``gw_live``."""

    def __init__(self, conninfo: str, *, wait_s: float = 2.0) -> None:
        super().__init__(conninfo, name="live", wait_s=wait_s)

    async def count(self, classes: Collection[int]) -> Counted:
        """Raises: StoreDown. Cost: 1 ms for 60 classes of 100,000 units, 54 ms for all."""
        asked = "{" + ",".join(map(str, sorted(classes))) + "}"
        units: dict[int, int] = {}
        threads: dict[int, int] = {}
        digest = ""
        for sort, class_id, number, told in await self.rows(_COUNT, {"classes": asked}):
            if sort == "revision":
                digest = told
            else:
                (units if sort == "unit" else threads)[class_id] = number
        return Counted(digest, units, threads)


class UnitLabels(Station):
    """Labels of units, under ``gw_guard``."""

    def __init__(self, conninfo: str, *, wait_s: float = 2.0) -> None:
        super().__init__(conninfo, name="labels", wait_s=wait_s)

    async def label(self, reference: str) -> tuple[str, UnitLabel | None]:
        """The active revision, and the label of a live unit by id or address. Raises: StoreDown."""
        try:
            unit_id: UUID | None = UUID(reference)
        except ValueError:
            unit_id = None
        digest, found = "", None
        rows = await self.rows(_LABEL, {"id": unit_id, "address": reference})
        for one, class_id, tenant, jurisdiction, told, until in rows:
            if one is None:
                digest = told
            else:
                found = UnitLabel(one, class_id, tenant, jurisdiction, until)
        return digest, found
