"""A fallback pack says how many of the units asked for there are not, for this caller."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from policies.snapshot import Snapshot
from tests.retrieval.stage import packs, stage, wire
from tests.retrieval.world import EMPLOYEE, HIDDEN_FROM_ALL, Unit, World
from tests.services import Database, VectorService

SEEN = tuple(Unit(f"seen/{n}", f"Refund {n}", f"refund webhook number {n}") for n in range(4))


def test_a_shortfall_counts_permitted_units_and_no_others(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Four may be read: of ten asked for six are missing, whatever else matches; of three none."""

    async def run() -> None:
        async with stage(database, sidecar, snapshot) as ready:
            await ready.put(World(units=SEEN))
            alone = await ready.retrieve("refund webhook")
            (pack,) = packs(alone)
            assert pack.fallback_signal is not None
            assert (len(pack.canonical_units), pack.fallback_signal.shortfall) == (4, 6)
            (short,) = packs(await ready.retrieve("refund webhook", k=3))
            assert short.fallback_signal is not None
            assert (len(short.canonical_units), short.fallback_signal.shortfall) == (3, 0)

            hidden = tuple(
                replace(one, address=f"hidden/{label.visibility}/{number}", label=label)
                for number, one in enumerate(SEEN)
                for label in (*HIDDEN_FROM_ALL, EMPLOYEE)
            )
            distinct = {one.address: one for one in hidden}
            await ready.put(World(units=tuple(distinct.values())))
            (again,) = packs(await ready.retrieve("refund webhook"))
            assert again.model_copy(update={"pack_id": pack.pack_id}) == pack
            assert "hidden" not in wire(await ready.retrieve("refund webhook"))
            (staff,) = packs(await ready.retrieve("refund webhook", "employee"))
            assert staff.fallback_signal is not None
            assert staff.fallback_signal.shortfall == 2

    asyncio.run(run())
