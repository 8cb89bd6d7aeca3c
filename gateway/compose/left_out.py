"""What is missing among signals, as metrics: read from the database, where the worker writes it.

The worker is another process, of several one leads; whoever starts one tells the numbers of all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import psycopg

from gateway.compose.stores import Stores
from gateway.settings import Settings
from gateway.telemetry.counters import Counters
from retrieval.signals.left_out import LeftOut, left_out

PERIOD_S: Final = 30.0
_LOG: Final = logging.getLogger(__name__)


class SignalsLeftOut:
    """Two families of metrics, without samples until they were read, and while they cannot be."""

    def __init__(self) -> None:
        self._gaps: dict[tuple[str, ...], int] = {}
        self._questions: dict[tuple[str, ...], int] = {}
        self._failing = False

    def publish(self, counters: Counters) -> None:
        """Tell both through the doors of the metrics."""
        counters.levels(
            "gateway_signal_gaps_without_room",
            "Repeated gaps of today that the daily shares kept out of the destinations, at most.",
            ("audience",),
            lambda: [(key, float(gaps)) for key, gaps in self._gaps.items()],
        )
        counters.family(
            "gateway_signal_questions_passed_over_total",
            "Questions that nobody classified: no room was left for their subject, or for any.",
            ("reason",),
            self._questions,
        )

    async def look(self, read: Callable[[], Awaitable[LeftOut]]) -> None:
        """Read once; a database that does not answer is warned of once."""
        try:
            found = await read()
        except psycopg.Error as error:
            if not self._failing:
                _LOG.warning("signals: what was left out is unknown: %s", type(error).__name__)
            self._failing, found = True, LeftOut()
        else:
            self._failing = False
        for kept, said in (self._gaps, found.gaps), (self._questions, found.questions):
            kept.clear()
            kept.update({(label,): number for label, number in said.items()})


@asynccontextmanager
async def telling_left_out(
    settings: Settings, stores: Stores, counters: Counters
) -> AsyncIterator[None]:
    """Tell them for as long as the block lasts; nothing where no worker is wanted.

    Cost: a connection each half minute.
    """
    if not settings.signals.worker:
        yield
        return
    told = SignalsLeftOut()
    told.publish(counters)
    looking = asyncio.create_task(_look(told, stores), name="signals left out")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _look(told: SignalsLeftOut, stores: Stores) -> None:
    read = partial(left_out, stores.database_url, stores.database_secret)
    while True:
        await told.look(read)
        await asyncio.sleep(PERIOD_S)
