"""Reading the journal: the newest events and uses, and whether anybody has touched it.

Reads as any role that may select the journal (``gw_seal``, or an auditor's own).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from gateway.journal.chain import COLUMNS, EMPTY, Break, Finding, Head, Seal, Walk
from gateway.journal.postgres import QUEUES

_BATCH: Final = 1_000
_SELECT: Final = ", ".join(f"e.{name}" for name in COLUMNS)
_SEALS: Final = f"""
select s.position, s.event_id, s.prev_hash, s.hash, e.id is not null, {_SELECT}
from gate.security_event_seal s left join gate.security_event e on e.id = s.event_id
order by s.position
"""
_UNSEALED: Final = """
select count(*) from gate.security_event e
where not exists (select from gate.security_event_seal s where s.event_id = e.id)
"""
_UNESCALATED: Final = """
select e.id from gate.security_event e where e.kind = 'wrong_audience_result' and (
    (select count(*) from gate.escalation x
     where x.event_id = e.id and x.queue = any(%(queues)s)) < cardinality(%(queues)s)
    or not exists (select from gate.consumer_contract_log c where c.event_id = e.id))
order by e.occurred_at, e.id
"""
_NEWEST: Final = f"""
select {_SELECT}, s.position from gate.security_event e
left join gate.security_event_seal s on s.event_id = e.id
order by e.occurred_at desc, e.id desc limit %s
"""

ACCESS_COLUMNS: Final = (
    "id", "occurred_at", "request_id", "trace_id", "subject_hash", "issuer", "roles", "action",
    "effect", "rules", "reason", "policy_digest", "about_digest", "told",
)  # fmt: skip
_USES: Final = f"""
select {", ".join(ACCESS_COLUMNS)} from gate.admin_access
order by occurred_at desc, id desc limit %s
"""

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reading of the whole journal found. ``unsealed`` events wait for the sealer."""

    head: Head
    unsealed: int
    findings: tuple[Finding, ...]

    @property
    def intact(self) -> bool:
        return not self.findings


async def verify(connection: Connection, *, kept: Head = EMPTY) -> Verdict:
    """Read the whole chain and say what is wrong with it.

    ``kept`` is a head noted earlier outside the database; without one, the newest events
    and their seals could have been cut off unseen. Cost: reads every row once, in batches.
    """
    async with connection.transaction():
        await connection.execute("set transaction isolation level repeatable read read only")
        walk = Walk(kept)
        async for seal in _seals(connection):
            walk.feed(seal)
        row = await (await connection.execute(_UNSEALED)).fetchone()
        missing = await (
            await connection.execute(_UNESCALATED, {"queues": list(QUEUES)})
        ).fetchall()
    findings = walk.end()
    findings += [Finding(Break.ESCALATION_MISSING, 0, event_id) for (event_id,) in missing]
    return Verdict(walk.head, row[0] if row is not None else 0, tuple(findings))


async def _seals(connection: Connection) -> AsyncIterator[Seal]:
    async with connection.cursor(name="seals") as cursor:
        cursor.itersize = _BATCH
        await cursor.execute(_SEALS)
        async for position, event_id, prev_hash, digest, there, *event in cursor:
            yield Seal(position, event_id, prev_hash, digest, tuple(event) if there else None)


async def newest(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """The newest events first, as column -> value, with ``sealed_at_position`` (None: not yet)."""
    rows = await (await connection.execute(_NEWEST, [limit])).fetchall()
    names = (*COLUMNS, "sealed_at_position")
    return [dict(zip(names, row, strict=True)) for row in rows]


async def newest_uses(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """The newest uses of the operators' surface first, as column -> value."""
    rows = await (await connection.execute(_USES, [limit])).fetchall()
    return [dict(zip(ACCESS_COLUMNS, row, strict=True)) for row in rows]
