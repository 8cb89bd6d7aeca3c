"""Brings counts from memory to the database: every few seconds, and once more at the end.

Laws
    * No request waits for it. Counts that cannot be written are kept and tried again.
    * Rows are added to, so several gateways count into the same ones. A commit whose answer is
      lost is tried again and may then count twice: a shadow's numbers are evidence, no ledger.
    * Without counts there is no connection.

Source of the tables: migration 0080. It writes as ``gw_watch``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterator
from typing import Any, Final

import psycopg

from gateway.shadow.observer import PairKey, Shadow
from policies.decision import UNCLASSED
from policies.shadow.disagreement import Disagreement
from policies.shadow.tally import Sample, Tally

PERIOD_S: Final = 5.0
LAST_S: Final = 5.0
COMPARED: Final = "compared"
FAULT: Final = "fault"
_LOG: Final = logging.getLogger(__name__)

_RUN: Final = """
select run, sample from gate.policy_candidate where digest = %s order by run desc limit 1
"""
_ADD: Final = """
insert into gate.shadow_count as c (run, live_digest, key, outcome, point, profile, asked, live,
    candidate, live_rules, candidate_rules, class_id, consent, seen)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
on conflict (run, live_digest, key) do update set seen = c.seen + excluded.seen
"""
_SAMPLE: Final = """
with kept as (
    select slot, route, class_ids from gate.shadow_sample
    where run = %(run)s and live_digest = %(live)s and point = %(point)s
      and outcome = %(outcome)s and profile = %(profile)s
)
insert into gate.shadow_sample (run, live_digest, point, outcome, profile, slot, route, class_ids)
select %(run)s, %(live)s, %(point)s, %(outcome)s, %(profile)s,
       (select count(*) from kept), %(route)s, %(class_ids)s::smallint[]
where (select count(*) from kept) < %(most)s
  and not exists (
      select from kept where route = %(route)s and class_ids = %(class_ids)s::smallint[])
on conflict do nothing
"""

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Row = tuple[object, ...]


class ShadowKeeper:
    """Writes what a shadow counted, until it is stopped."""

    def __init__(self, shadow: Shadow, conninfo: str, *, period_s: float = PERIOD_S) -> None:
        self._shadow = shadow
        self._conninfo = conninfo
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        """Run until ``stop``."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="shadow counts")

    async def stop(self) -> None:
        """End the task and write what is left, for at most five seconds."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        try:
            async with asyncio.timeout(LAST_S):
                await self.flush()
        except TimeoutError:
            _LOG.warning("shadow: the last counts could not be written")

    async def flush(self) -> bool:
        """Write all that was counted so far; whether nothing is left to be tried again."""
        taken = self._shadow.take()
        if not taken:
            return True
        written = False
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._conninfo, autocommit=True, connect_timeout=5
            )
            async with connection, connection.transaction():
                for key, tally in taken.items():
                    await _keep(connection, key, tally)
            written, self._failing = True, False
        except psycopg.Error as error:
            if not self._failing:
                _LOG.warning("shadow: counts cannot be written: %s", type(error).__name__)
            self._failing = True
        finally:  # also when cancelled half-way
            if not written:
                self._shadow.give_back(taken)
        return written

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self.flush()


async def _keep(connection: Connection, key: PairKey, tally: Tally) -> None:
    """Add one pair's counts to its run; those of a candidate that nobody started are dropped."""
    live, candidate = key
    row = await (await connection.execute(_RUN, [candidate])).fetchone()
    if row is None:
        _LOG.warning("shadow: `%s` is no candidate of this database", candidate[:12])
        return
    run, most = row
    cursor = connection.cursor()
    # in one order everywhere, so that two gateways never wait for each other in a ring
    rows = sorted(_rows(tally), key=lambda one: str(one[0]))
    await cursor.executemany(_ADD, [(run, live, *one) for one in rows])
    samples = [_sample(one) for kept in tally.samples.values() for one in kept]
    for values in samples:
        await cursor.execute(_SAMPLE, {"run": run, "live": live, "most": most, **values})


def _rows(tally: Tally) -> Iterator[Row]:
    for (point, profile), times in tally.compared.items():
        yield _row(COMPARED, point, profile, times)
    for one, times in tally.seen.items():
        yield _row(one.way, one.point, one.profile, times, one)
    if tally.faults:
        yield _row(FAULT, "", "", tally.faults)


def _row(
    outcome: str, point: str, profile: str, times: int, one: Disagreement | None = None
) -> Row:
    told: tuple[object, ...] = ("", "", "", [], [], UNCLASSED, False)
    if one is not None:
        rules = list(one.live_rules), list(one.candidate_rules)
        told = (one.asked, one.live, one.candidate, *rules, one.class_id, one.consent)
    words = (outcome, point, profile, *told)
    key = hashlib.sha256(json.dumps(words).encode()).hexdigest()
    return (key, *words, times)


def _sample(one: Sample) -> dict[str, object]:
    return {
        "point": one.point,
        "outcome": one.way,
        "profile": one.profile,
        "route": one.route,
        "class_ids": list(one.class_ids),
    }
