"""Allowances that several gateways share, in Postgres.

Laws
    * One request is one statement: the row of a caller is made, judged and used up at once, by
      the database's clock, so that no two gateways count by clocks of their own.
    * While the store cannot answer, each gateway goes on with its part of the allowance: the
      rate divided by the gateways that were last seen, and as much less of a burst. All of them
      together give no more than the store would (but for a burst of one each, where it is smaller
      than their number), and nobody is refused for its silence alone.
    * Each gateway keeps its part up to date all along, so that a store that falls silent
      gives nobody a second burst.

Source: GCRA (ITU-T I.371, annex A); issue 4 part 3; migration 0110. It logs in as ``gw_rate``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from psycopg_pool.errors import PoolClosed

from gateway.relay.admission import Allowance, LocalRates

DEADLINE_S: Final = 0.25
"""What a request waits for the store before its gateway decides alone."""
REST_S: Final = 1.0
"""How long a store that did not answer is left alone."""
PERIOD_S: Final = 15.0
"""How often rows that say nothing any more are removed, and gateways counted."""
ALIVE_S: Final = 15
"""A gateway that was not seen for longer shares nothing (``gateway.reload.sightings``)."""

_SHORTEST: Final = timedelta(microseconds=1)
_SILENT: Final = (psycopg.Error, PoolTimeout, PoolClosed, OSError)
_LOG: Final = logging.getLogger(__name__)

# `due` of a request that passes is one step later; it passes while that is within the burst. What
# is further ahead than a burst was written by another clock, or under a larger burst.
_TAKE: Final = """
insert into gate.rate_state as r (key, due, wait)
values (%(key)s, now() + %(step)s, '0')
on conflict (key) do update set (due, wait) = (
    select case when ahead <= %(most)s then now() + ahead else now() + ahead - %(step)s end,
           greatest(ahead - %(most)s, '0')
    from (select greatest(least(r.due - now(), %(most)s), '0') + %(step)s as ahead) next)
returning extract(epoch from wait)::float8
"""
_SWEEP: Final = """
delete from gate.rate_state where key in (
    select key from gate.rate_state where due < now() limit 10000 for update skip locked)
"""
_SHARING: Final = f"""
select count(*) from gate.replica where seen_at > now() - interval '{ALIVE_S} seconds'
"""


class SharedRates:
    """A store of allowances over a small pool; ``clock`` gives monotonic seconds."""

    def __init__(
        self,
        conninfo: str,
        *,
        size: int = 4,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]] = (
            AsyncConnectionPool(
                conninfo,
                min_size=1,
                max_size=size,
                timeout=DEADLINE_S,
                reconnect_timeout=5,  # then the next request tries: no minutes of backing off
                open=False,
                name="rates",
                kwargs={"autocommit": True, "options": "-c statement_timeout=1000"},
            )
        )
        self._period_s = period_s
        self._clock = clock
        self._local = LocalRates(clock=clock)
        self._rests_until = float("-inf")
        self._under_way: set[asyncio.Task[float]] = set()
        self._tending: asyncio.Task[None] | None = None
        self.sharing = 1
        """The gateways that were last seen to share, this one included."""
        self.decisions: dict[tuple[str, ...], int] = {("store",): 0, ("alone",): 0}
        """Requests by who decided about them."""

    async def open(self) -> None:
        """Begin to connect, and to tend the table; a store that is down refuses no start."""
        await self._pool.open(wait=False)
        self._tending = asyncio.create_task(self._tend(), name="rates")

    async def close(self) -> None:
        """End what is under way and disconnect."""
        tasks = [*self._under_way, *([self._tending] if self._tending else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    async def take(self, route: str, who: str, allowance: Allowance) -> float:
        """See ``RateStore.take``. Cost: a round trip to the database, 0.25 s at most."""
        own = await self._local.take(route, who, self._part(allowance))
        said = await self._said(route, who, allowance)
        self.decisions["alone" if said is None else "store",] += 1
        return own if said is None else said

    async def _said(self, route: str, who: str, allowance: Allowance) -> float | None:
        """What the store says, None when it does not answer or is left alone."""
        if self._clock() < self._rests_until:
            return None
        asked = asyncio.create_task(self._asked(route, who, allowance))
        self._under_way.add(asked)
        asked.add_done_callback(self._over)
        # no timeout around the query: one that is cancelled waits for its server, for ten seconds
        await asyncio.wait({asked}, timeout=DEADLINE_S)
        if not asked.done():
            asked.cancel()
            reason = "no answer in time"
        elif (error := asked.exception()) is None:
            return asked.result()
        elif isinstance(error, _SILENT):
            reason = type(error).__name__
        else:
            raise error
        if self._clock() >= self._rests_until:
            _LOG.warning("rates: each gateway decides alone for now: %s", reason)
            self._rests_until = self._clock() + REST_S
        return None

    def _over(self, asked: asyncio.Task[float]) -> None:
        self._under_way.discard(asked)
        if not asked.cancelled():
            asked.exception()  # heard, also where nobody waits for it any more

    def _part(self, allowance: Allowance) -> Allowance:
        """What is ours of an allowance when nobody else can be asked."""
        return replace(
            allowance,
            period_s=allowance.period_s * self.sharing,
            burst=max(1, allowance.burst // self.sharing),
        )

    async def _asked(self, route: str, who: str, allowance: Allowance) -> float:
        step = max(_SHORTEST, timedelta(seconds=allowance.period_s / allowance.count))
        key = hashlib.sha256(json.dumps([route, who]).encode()).hexdigest()
        values = {"key": key, "step": step, "most": step * allowance.burst}
        async with self._pool.connection() as connection:
            row = await (await connection.execute(_TAKE, values)).fetchone()
        if row is None:
            raise psycopg.DataError("no row")
        return float(row[0])

    async def _tend(self) -> None:
        while True:
            with contextlib.suppress(*_SILENT):  # requests notice it, and say so
                async with self._pool.connection(timeout=self._period_s) as connection:
                    row = await (await connection.execute(_SHARING)).fetchone()
                    self.sharing = max(1, row[0] if row is not None else 1)
                    await connection.execute(_SWEEP)
            await asyncio.sleep(self._period_s)
