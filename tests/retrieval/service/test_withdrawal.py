"""What is withdrawn, narrowed or deleted is gone from the very next answer, on every path.

The index is held back on purpose: its worker cannot write while another session has its lock.
The answer to each question must already be the one that the index, once it has caught up, gives,
but for how a thread was found: a centroid over other units than the present ones is not used
until the worker has made it anew.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import cycle, product

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.stores.outbox import LOCK
from tests.retrieval.stage import Stage, stage, wire
from tests.retrieval.world import PUBLIC, Artifact, Edge, Link, Thread, Unit, World, id_of
from tests.services import Database, VectorService

THREAD = "thread/refund-webhooks"
QUESTION = "refund webhook fails"
CORE = Unit("doc/core", "Refund webhook", "When a refund webhook fails it is retried.", stage="law")
NEXT = Unit("doc/next", "Refund retries", "A refund webhook is retried four times.", stage="law")
AIDE = Unit("doc/aide", "Refund notes", "Notes on a refund webhook that fails.")
NEWS = replace(CORE, address="doc/news", title="Refund report", stage="report")
PLAN = replace(CORE, address="doc/plan", title="Refund design", stage="design",
               label=PUBLIC.of("design"))  # fmt: skip
LOOSE = Unit("doc/loose", "Loose ends", "The zanzibar clause is about a refund webhook.")
UNITS = (CORE, NEXT, AIDE, NEWS, PLAN, LOOSE)
WORLD = World(
    units=UNITS,
    threads=(Thread(THREAD, "Refund webhook fails", aliases=("webhook trouble",)),),
    links=(
        Link(THREAD, CORE.address), Link(THREAD, NEXT.address),
        Link(THREAD, AIDE.address, "supporting"), Link(THREAD, NEWS.address, "report"),
    ),
    edges=(Edge(CORE.address, PLAN.address), Edge(LOOSE.address, PLAN.address)),
    artifacts=(Artifact(THREAD, "The law", "law"),),
)  # fmt: skip

_HOW_FOUND = re.compile(r'"score":[0-9.]+|"signal_breakdown":\[[^]]*\]')

WITHDRAWN = "update brain.unit set publication_state = 'withdrawn' where id = %s"
NARROWED = "update brain.unit set visibility = 'restricted' where id = %s"
MOVED = "update brain.unit set tenant = 'acme' where id = %s"
DELETED = "update brain.unit set deleted_at = now() where id = %s"
THREAD_WITHDRAWN = "update brain.thread set publication_state = 'withdrawn' where id = %s"


async def answers(ready: Stage) -> dict[str, str]:
    """What a customer gets by every path, as bytes."""
    found = {
        "thread by words": await ready.retrieve(QUESTION),
        "thread by its alias": await ready.retrieve("webhook trouble"),
        "thread by reference": await ready.retrieve("anything", thread=THREAD),
        "thread named in the question": await ready.retrieve(f"what about {THREAD} now"),
        "pack": await ready.pack(THREAD),
        "vectors": await ready.retrieve(QUESTION, mode="raw"),
        "vectors by a rare word": await ready.retrieve("zanzibar", mode="raw"),
        "fallback": await ready.retrieve("zanzibar clause"),
        **{one.address: await ready.unit(one.address) for one in UNITS},
    }
    return {path: _HOW_FOUND.sub("", wire(answer)) for path, answer in found.items()}


@asynccontextmanager
async def index_held_back(ready: Stage) -> AsyncIterator[None]:
    """The index stays as it is: nobody else gets the lock of its writer."""
    async with await psycopg.AsyncConnection.connect(ready.database.url) as connection:
        await connection.execute("select pg_advisory_xact_lock(%s)", [LOCK])
        yield
        await connection.rollback()


WAYS = (WITHDRAWN, NARROWED, MOVED, DELETED)


@pytest.mark.parametrize(
    "changes",
    [
        list(zip(UNITS, cycle(WAYS), strict=False)),
        pytest.param(
            list(product(UNITS, WAYS)), marks=[pytest.mark.slow, pytest.mark.timeout(900)]
        ),
    ],
    ids=["each unit in one way", "each unit in every way"],
)
def test_a_unit_is_gone_before_the_index_knows(
    database: Database, sidecar: VectorService, snapshot: Snapshot, changes: list[tuple[Unit, str]]
) -> None:
    """Each unit in turn, so that every place of a pack loses one: core, supporting, report, both
    ends of an edge, what fills a gap, and what only vectors find."""

    async def run() -> None:
        async with stage(database, sidecar, snapshot) as ready:
            for victim, statement in changes:
                await ready.put(WORLD)
                before = await answers(ready)
                named = str(id_of(victim.address))
                assert sum(named in text for text in before.values()) >= 2
                async with index_held_back(ready):
                    await ready.sql(statement, (id_of(victim.address),))
                    stale = await answers(ready)
                assert not [path for path, text in stale.items() if named in text]
                assert not [path for path, text in stale.items() if victim.address in text]
                await ready.worker.drain()
                assert await answers(ready) == stale
                await ready.clear()

    asyncio.run(run())


def test_a_thread_is_gone_by_every_name_that_it_had(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Title, alias, id and address; its units are still found by other paths."""

    async def run() -> None:
        async with stage(database, sidecar, snapshot) as ready:
            await ready.put(WORLD)
            named = str(id_of(THREAD))
            assert sum(named in text for text in (await answers(ready)).values()) >= 5
            async with index_held_back(ready):
                await ready.sql(THREAD_WITHDRAWN, (id_of(THREAD),))
                stale = await answers(ready)
            assert not [path for path, text in stale.items() if named in text or THREAD in text]
            assert str(id_of(CORE.address)) in stale["thread by words"]
            await ready.worker.drain()
            assert await answers(ready) == stale

    asyncio.run(run())
