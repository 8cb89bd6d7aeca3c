"""Recurring questions find their threads, and others find none: the bar of the resolver.

By the product's own metrics (``usage``), as ``gateway metrics`` shows them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from policies.snapshot import Snapshot
from tests.retrieval.stage import stage
from tests.retrieval.threads.corpora import fill, off_topic, questions, real_embedder
from tests.retrieval.threads.usage import Counted, use
from tests.services import Cluster, Database, VectorService, fresh_database


def _used(
    name: str,
    database: Database,
    sidecar: VectorService,
    snapshot: Snapshot,
    shared_data: Path,
    *,
    every: int,
) -> tuple[Counted, Counted]:
    """What the recurring questions of a corpus come to, and what it is with ``every``-th off-topic
    ones besides."""
    who = fill(name, database, snapshot, shared_data)

    async def run() -> tuple[Counted, Counted]:
        embedder = real_embedder(shared_data)
        async with stage(database, sidecar, snapshot, embedder=embedder) as served:
            await served.worker.drain()
            own = await use(served, who, questions(name))
            all_ = await use(served, who, off_topic(shared_data, every=every))
            # `-rP` shows it
            print(
                f"{name}: {own.hits} of {own.asked} questions hit, {own.wrong} of them wrong; "
                f"{all_.hits - own.hits} of {all_.asked - own.asked} off-topic ones did"
            )
            return own, all_

    return asyncio.run(run())


@pytest.mark.timeout(600)
def test_the_sample_company_is_found_by_what_people_ask(
    database: Database, sidecar: VectorService, snapshot: Snapshot, shared_data: Path
) -> None:
    """Recurring questions in three languages, held to the issue's bar for this corpus alone: at
    least 90 % hits, at most 5 % of them wrong. Of 445 off-topic questions one finds a thread, which
    shares its word ("who did internet2 partner with"): at most one in a hundred is the law here.
    """
    own, all_ = _used("ferrowick", database, sidecar, snapshot, shared_data, every=13)
    assert own.hits >= 0.9 * own.asked
    assert own.wrong <= 0.05 * own.hits
    assert all_.asked - own.asked >= 100
    assert all_.hits - own.hits <= 0.01 * (all_.asked - own.asked)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_recurring_questions_of_both_corpora_meet_the_bar(
    cluster: Cluster,
    migrated_template: Database,
    sidecar: VectorService,
    snapshot: Snapshot,
    shared_data: Path,
) -> None:
    """Mandated by the issue, over both: at least 90 % hits, at most 5 % of them wrong, none of 100
    off-topic questions."""
    used = []
    for name in ("ferrowick", "peps"):
        with fresh_database(cluster, template=migrated_template.name) as database:
            used.append(_used(name, database, sidecar, snapshot, shared_data, every=9))
    hits = sum(own.hits for own, _ in used)
    assert hits >= 0.9 * sum(own.asked for own, _ in used)
    assert sum(own.wrong for own, _ in used) <= 0.05 * hits
    assert all(all_.asked - own.asked >= 100 for own, all_ in used)
    assert all(all_.hits == own.hits for own, all_ in used)
