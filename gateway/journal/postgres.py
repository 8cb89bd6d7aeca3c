"""The journal in Postgres: an event and everything that it causes, in one transaction.

Laws
    * ``record`` returns after a synchronous commit, or raises; there is no third outcome.
    * The role may insert and nothing else: this process cannot change or read its own past.
    * All rows of an event are written by one statement, so that an abort leaves none, and
      with ids derived from the event's, so that a retry after a lost answer adds none.

Source: seed section 4.12 (hard error, escalation to governance D37 and risk review D32).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from psycopg_pool.errors import PoolClosed

from gateway.journal import contract
from gateway.journal.access import INSERT, AdminAccess
from gateway.journal.contract import Breaches
from gateway.journal.event import EventKind, JournalUnavailable, SecurityEvent

QUEUES: Final = ("governance", "risk_review")
"""Who hears of a wrong-audience result: one escalation row each."""

_EVENT: Final = """
insert into gate.security_event (id, kind, severity, request_id, trace_id, audience, profile,
    subject_hash, route, unit_ids, unit_count, class_ids, layer, policy_digest, action)
values (%(id)s, %(kind)s, %(severity)s, %(request_id)s, %(trace_id)s, %(audience)s, %(profile)s,
    %(subject_hash)s, %(route)s, %(unit_ids)s::uuid[], %(unit_count)s, %(class_ids)s::smallint[],
    %(layer)s, %(policy_digest)s, %(action)s)
on conflict do nothing
"""

# References are checked at the end of the statement, so one statement can write all three.
_ESCALATED: Final = f"""
with event as ({_EVENT}), raised as (
    insert into gate.escalation (id, event_id, queue)
    select ref, %(id)s, queue
    from unnest(%(escalation_ids)s::uuid[], %(queues)s::text[]) as want (ref, queue)
    on conflict do nothing
)
insert into gate.consumer_contract_log (id, kind, request_id, event_id)
values (%(contract_id)s, %(kind)s, %(request_id)s, %(id)s)
on conflict do nothing
"""

_WRITABLE: Final = """
select has_table_privilege('gate.security_event', 'insert')
   and has_table_privilege('gate.escalation', 'insert')
   and has_table_privilege('gate.consumer_contract_log', 'insert')
   and not pg_is_in_recovery()
   and current_setting('default_transaction_read_only') = 'off'
"""


class PostgresJournal:
    """A journal over a small pool of connections of the role ``gw_journal``."""

    def __init__(self, conninfo: str, *, deadline_ms: int, pool_max: int = 4) -> None:
        self._deadline_s = deadline_ms / 1_000
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]] = (
            AsyncConnectionPool(
                conninfo,
                min_size=1,
                max_size=pool_max,
                open=False,
                timeout=self._deadline_s,
                reconnect_timeout=5,  # then the next event tries: no minutes of backing off
                name="journal",
                # a server that was set to answer before the disk has it must not do so here
                kwargs={"autocommit": True, "options": "-c synchronous_commit=on"},
            )
        )

    async def open(self) -> None:
        """Connect. Raises: JournalUnavailable when no connection can be made in time."""
        await self._pool.open()
        try:
            await self._pool.wait(self._deadline_s)
        except PoolTimeout as error:
            await self._pool.close()
            raise JournalUnavailable("no connection to the journal") from error

    async def close(self) -> None:
        await self._pool.close()

    async def record(self, event: SecurityEvent) -> None:
        """Make the event durable; see ``Journal.record``. Cost: one round trip and one fsync.

        A connection that breaks is replaced once within the deadline: writing an event twice
        is the same as once.
        """
        await self._durable(_statement(event), _values(event), "the security event")

    async def record_access(self, access: AdminAccess) -> None:
        """Make an operator's use durable; see ``AccessJournal.record_access``. Cost: as above."""
        await self._durable(INSERT, access.values(), "the operator's use")

    async def record_breaches(self, breaches: Breaches) -> None:
        """Make breaches durable; see ``Journal.record_breaches``. Cost: as above."""
        await self._durable(contract.INSERT, breaches.values(), "a breach of contract")

    async def _durable(self, statement: str, values: dict[str, Any], what: str) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                try:
                    await self._write(statement, values)
                except psycopg.OperationalError:
                    await self._write(statement, values)
        except (psycopg.Error, PoolTimeout, PoolClosed, TimeoutError) as error:
            raise JournalUnavailable(f"{what} is not durable") from error

    async def _write(self, statement: str, values: dict[str, Any]) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(statement, values)

    async def writable(self) -> bool:
        """Whether an event could be recorded now. Writes nothing."""
        try:
            async with asyncio.timeout(self._deadline_s), self._pool.connection() as connection:
                row = await (await connection.execute(_WRITABLE)).fetchone()
        except (psycopg.Error, PoolTimeout, PoolClosed, TimeoutError):
            return False
        return row is not None and row[0] is True


def _statement(event: SecurityEvent) -> str:
    """Only a result for the wrong audience causes more than its own row."""
    return _ESCALATED if event.kind is EventKind.WRONG_AUDIENCE_RESULT else _EVENT


def _values(event: SecurityEvent) -> dict[str, Any]:
    return {
        "id": event.event_id,
        "kind": event.kind.value,
        "severity": event.severity,
        "request_id": event.request_id,
        "trace_id": event.trace_id,
        "audience": event.audience,
        "profile": event.profile,
        "subject_hash": event.subject_hash,
        "route": event.route,
        "unit_ids": list(event.unit_ids),
        "unit_count": event.unit_count,
        "class_ids": list(event.class_ids),
        "layer": event.layer,
        "policy_digest": event.policy_digest,
        "action": event.action.value,
        "queues": list(QUEUES),
        "escalation_ids": [uuid5(NAMESPACE_OID, f"{event.event_id}/{name}") for name in QUEUES],
        "contract_id": uuid5(NAMESPACE_OID, f"{event.event_id}/contract"),
    }
