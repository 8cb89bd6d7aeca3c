"""Gives back their own class to units whose override has run out, within a second.

Laws
    * Nobody reads such a unit from the moment that its time is over: row-level security and the
      guard see to it by the clock. This only gives it back to those whom its label names.
    * Every gateway runs one; rows that another one is at are skipped.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import psycopg

PERIOD_S: Final = 1.0
RETRY_S: Final = 5.0
_END: Final = "select gate.end_overrides()"
_log = logging.getLogger(__name__)


class OverrideEnder:
    """``conninfo`` logs in as ``gw_label``. Cost: one look-up in a partial index a second."""

    def __init__(self, conninfo: str, *, period_s: float = PERIOD_S) -> None:
        self._conninfo: Final = conninfo
        self._period_s: Final = period_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run until ``stop``, reconnecting for ever."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="overrides")

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
                async with connection:
                    while True:
                        await self._end(connection)
                        await asyncio.sleep(self._period_s)
            except (psycopg.Error, OSError) as error:
                _log.warning("overrides are not ended, will retry: %s", type(error).__name__)
                await asyncio.sleep(RETRY_S)

    async def _end(self, connection: psycopg.AsyncConnection[Any]) -> None:
        row = await (await connection.execute(_END)).fetchone()
        if row is not None and row[0]:
            _log.info("ended %d overrides", row[0])
