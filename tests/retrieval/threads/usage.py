"""Questions as consumers ask them, and the rates that the product counts of that use.

Every question is a request of its own. Where no delivered pack is of the thread that it is about,
the consumer says so, as the contract lets it. Then the worker makes a pass, and what
``gateway metrics`` prints is read. Nothing else is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg

from gateway.cli.signal_reading import rates
from policies.snapshot import Snapshot
from retrieval.contract import SubjectWire
from retrieval.signals.settings import SignalSettings
from retrieval.signals.worker import tend
from retrieval.stores.roles import METRIC, SIGNAL, STEWARD, dsn_for
from tests.retrieval.consumer.asking import say
from tests.retrieval.stage import Stage, packs
from tests.retrieval.threads.corpora import Question, answerable
from tests.services import Database


@dataclass(frozen=True, slots=True)
class Counted:
    """``thread_hit_rate`` and ``wrong_thread_rate`` as counts, over all days and audiences."""

    asked: int
    hits: int
    wrong: int


async def use(stage: Stage, who: SubjectWire, questions: Sequence[Question]) -> Counted:
    """Asks them, but for those about threads that ``who`` may not see. What all use of this
    database so far comes to."""
    async with stage.retrieval._truth.reading(who, stage.snapshot) as reader:
        mine = await answerable(reader, questions)
    meant = await asyncio.to_thread(_threads, stage.database)
    for question in mine:
        envelope = stage.envelope("retrieve", who, request={"query": question.text})
        answer = await stage.retrieval.ask(envelope.model_copy(update={"request_id": str(uuid4())}))
        threads = {pack.thread_id for pack in packs(answer)} - {None}
        if threads and meant.get(question.thread) not in threads:
            told = await say(stage, packs(answer)[0].pack_id, "wrong_thread", who)
            assert told.feedback is not None, told
    return await _counted(stage.database, stage.snapshot)


def _threads(database: Database) -> dict[str, UUID]:
    with psycopg.connect(database.url) as connection:
        rows = connection.execute("select canonical_address, id from brain.thread").fetchall()
    return dict(rows)


async def _counted(database: Database, snapshot: Snapshot) -> Counted:
    """One pass of the worker, and the rates as their owners see them."""
    connect = psycopg.AsyncConnection[Any].connect
    async with (
        await connect(dsn_for(SIGNAL, database.url, database.secret), autocommit=True) as own,
        await connect(dsn_for(METRIC, database.url, database.secret), autocommit=True) as metric,
    ):
        await tend(own, metric, SignalSettings(), snapshot.thresholds)
    found = await asyncio.to_thread(_rates, database)
    asked = found["thread_hit_rate"]
    wrong = found.get("wrong_thread_rate", (0, 0))  # there is no such rate while nothing was hit
    assert wrong[1] == asked[0]
    return Counted(asked=asked[1], hits=asked[0], wrong=wrong[0])


def _rates(database: Database) -> dict[str, tuple[int, int]]:
    with psycopg.connect(dsn_for(STEWARD, database.url, database.secret)) as connection:
        rows = rates(connection, days=2)
    sums: dict[str, tuple[int, int]] = {}
    for row in rows:
        counted, of = sums.get(row["metric"], (0, 0))
        sums[row["metric"]] = counted + row["numerator"], of + row["denominator"]
    return sums
