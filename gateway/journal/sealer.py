"""The one sealer: chains new events within a second, whichever gateway it runs in.

Laws
    * Every gateway runs one; an advisory lock lets exactly one of them write. The lock dies
      with its connection, so a crashed sealer is replaced and never waited for.
    * A pass is one transaction: after a crash the chain ends at a whole seal, and the next
      pass goes on from there.
    * The sealer may fall behind or be down without a request noticing: the event is already
      durable. Health and ``gateway events verify`` show it.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from typing import Any, Final

import psycopg

from gateway.journal.chain import COLUMNS, EMPTY, Head, extend

PERIOD_S: Final = 0.4
RETRY_S: Final = 2.0
PASS_MAX: Final = 500
"""Events per transaction."""

_LOCK: Final = 0x5EA1_0E5  # one number in the database's space of advisory locks
_FULL_SCAN_PASSES: Final = 1_500
_log = logging.getLogger(__name__)

_HEAD: Final = "select position, hash from gate.security_event_seal order by position desc limit 1"
_UNSEALED: Final = f"""
select {", ".join(f"e.{name}" for name in COLUMNS)} from gate.security_event e
where e.occurred_at >= case when %(recent)s then coalesce(
        (select sealed_at from gate.security_event_seal order by position desc limit 1)
        - interval '10 minutes', '-infinity') else '-infinity' end
  and not exists (select from gate.security_event_seal s where s.event_id = e.id)
order by e.occurred_at, e.id limit {PASS_MAX}
"""
_SEAL: Final = """
insert into gate.security_event_seal (position, event_id, prev_hash, hash) values (%s, %s, %s, %s)
"""

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class SealerState(StrEnum):
    """What a sealer is doing: sealing, waiting for the lock, or without a database."""

    SEALING = "sealing"
    STANDBY = "standby"
    DOWN = "down"


class Sealer:
    """Chains events of ``gate.security_event`` as the role ``gw_seal``."""

    def __init__(self, conninfo: str, *, period_s: float = PERIOD_S) -> None:
        self.state = SealerState.DOWN
        self._conninfo = conninfo
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run until ``stop``, reconnecting for ever."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="sealer")

    async def stop(self) -> None:
        """End the task; what it had not committed is sealed by the next one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self.state = SealerState.DOWN

    async def _run(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True, connect_timeout=5
                ) as connection:
                    await self._serve(connection)
            except psycopg.Error as error:
                if self.state is not SealerState.DOWN:
                    _log.warning("sealer: lost its connection: %s", type(error).__name__)
                self.state = SealerState.DOWN
                await asyncio.sleep(RETRY_S)

    async def _serve(self, connection: Connection) -> None:
        while not await take_lock(connection):
            self.state = SealerState.STANDBY
            await asyncio.sleep(self._period_s)
        self.state = SealerState.SEALING
        passes = 0
        while True:
            recent = passes % _FULL_SCAN_PASSES != 0
            sealed = await seal_once(connection, recent=recent)
            # a full scan is repeated until it finds nothing
            passes += 1 if recent or sealed == 0 else 0
            if sealed < PASS_MAX:
                await asyncio.sleep(self._period_s)


async def take_lock(connection: Connection) -> bool:
    """Whether ``connection`` now is the one that may seal, until it is closed."""
    row = await (await connection.execute("select pg_try_advisory_lock(%s)", [_LOCK])).fetchone()
    return row is not None and row[0] is True


async def seal_once(connection: Connection, *, recent: bool = False) -> int:
    """Chain up to ``PASS_MAX`` events that have no seal; how many. The lock must be held.

    ``recent`` looks only at events younger than the last seal less ten minutes: enough
    while sealing goes on, and independent of the journal's length.
    """
    async with connection.transaction():
        row = await (await connection.execute(_HEAD)).fetchone()
        head = Head(row[0], row[1]) if row is not None else EMPTY
        events = await (await connection.execute(_UNSEALED, {"recent": recent})).fetchall()
        rows = [(s.position, s.event_id, s.prev_hash, s.hash) for s in extend(head, events)]
        if rows:
            await connection.cursor().executemany(_SEAL, rows)
    return len(rows)
