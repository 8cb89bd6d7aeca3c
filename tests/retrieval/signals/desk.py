"""A running service with its signal worker at hand: what happens after the response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import psycopg

from policies.snapshot import Snapshot
from policies.thresholds import DEFAULTS
from retrieval.contract import Answer, FeedbackKind, SubjectWire
from retrieval.settings import ResolutionSettings
from retrieval.signals.classify import Classifier
from retrieval.signals.corpus import Corpus
from retrieval.signals.inquiry import CHANNEL, InquirySeal
from retrieval.signals.ledger import Delivery, Ledger
from retrieval.signals.settings import SignalSettings
from retrieval.signals.worker import tend
from retrieval.stores.roles import METRIC, SIGNAL, dsn_for
from tests.retrieval.stage import Stage, stage
from tests.retrieval.world import EMBEDDER, subject
from tests.services import Database, VectorService

QUICK = SignalSettings(term_subjects_min=3, repeated=2)
AGREED = replace(DEFAULTS, subjects_min=3)

Connection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """The worker's sessions, driven by hand; ``ledger`` says what a consumer says."""

    stage: Stage
    ledger: Ledger
    listening: Connection
    own: Connection
    metric: Connection
    looking: Connection
    settings: SignalSettings

    def who(self, name: str, audience: str = "customer") -> SubjectWire:
        """A subject of that name."""
        return subject(audience, self.stage.snapshot).model_copy(update={"subject_id": name})

    async def ask(
        self, query: str, name: str = "ann", audience: str = "customer", **more: object
    ) -> Answer:
        """One question, as a request of its own."""
        request = {"query": query, **more}
        ask = self.stage.envelope("retrieve", self.who(name, audience), request=request)
        return await self.stage.retrieval.ask(ask.model_copy(update={"request_id": str(uuid4())}))

    async def say(
        self, answer: Answer, kind: FeedbackKind, name: str = "ann", audience: str = "customer"
    ) -> None:
        """Feedback on the first pack of an answer that this subject got, by what it is now."""
        assert answer.response is not None
        pack_id = answer.response.packs[0].pack_id
        rows = await self.rows(
            "select pack_id, query_id, audience, profile, mode, query_hmac, thread_id, delivered_at"
            " from brain.pack_delivery where pack_id = %s and subject_id = %s",
            pack_id,
            name,
        )
        ask = self.stage.envelope("retrieve", self.who(name, audience), request={"query": "x"})
        await self.ledger.said(ask, Delivery(*rows[0]), kind)

    async def classify(self) -> int:
        """Looks at the questions that have travelled; at how many."""
        seal = InquirySeal(self.stage.database.secret)
        classifier = Classifier(
            self.own,
            Corpus(self.own, ResolutionSettings(), EMBEDDER),
            self.settings,
            self.stage.database.secret,
        )
        taken = 0
        # all of them first: what looking at one takes is not waited for the next
        for note in [note async for note in self.listening.notifies(timeout=0.2)]:
            inquiry = seal.open(note.payload)
            assert inquiry is not None
            taken += await classifier.classify(inquiry)
        return taken

    async def settle(self) -> None:
        """Classifies what has travelled, then one pass of the worker."""
        await self.classify()
        await tend(self.own, self.metric, self.settings, AGREED)

    async def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Anything, as the superuser."""
        return await (await self.looking.execute(query.encode(), values or None)).fetchall()

    async def signals(self) -> dict[str, str]:
        """Kind -> classification of all signals."""
        return dict(await self.rows("select kind, classification from brain.search_gap_signal"))

    async def rates(self) -> dict[str, tuple[int, int]]:
        """Metric -> numerator and denominator, over all days and audiences."""
        return {
            metric: (int(counted), int(of))
            for metric, counted, of in await self.rows(
                "select metric, sum(numerator), sum(denominator)"
                " from brain.retrieval_metric_aggregate group by metric"
            )
        }


@asynccontextmanager
async def desk(
    database: Database,
    vectors: VectorService,
    snapshot: Snapshot,
    settings: SignalSettings = QUICK,
) -> AsyncIterator[Desk]:
    """A service over an empty world, and a worker that waits to be driven."""
    signal = dsn_for(SIGNAL, database.url, database.secret)
    metric = dsn_for(METRIC, database.url, database.secret)
    connect = psycopg.AsyncConnection.connect
    ledger = Ledger(database.url, database.secret, connections_max=1)
    async with (
        stage(database, vectors, snapshot) as served,
        await connect(signal, autocommit=True) as listening,
        await connect(signal, autocommit=True) as own,
        await connect(metric, autocommit=True) as keeping,
        await connect(database.url, autocommit=True) as looking,
    ):
        await listening.execute(f"listen {CHANNEL}".encode())
        await ledger.open()
        try:
            yield Desk(served, ledger, listening, own, keeping, looking, settings)
        finally:
            await ledger.close()
