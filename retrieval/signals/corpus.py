"""The whole corpus, as nobody who asks may see it: is there an answer at all?

Laws
    * Only the worker's login reads here, after the response, and what it finds goes to owners.
    * The same resolver, model and measure as for callers, over all classes and compartments.
    * Quarantined objects (class -1) are in no list, so they count as absent, as for callers.

Source: architecture section 6 (signals are classified by a separate non-serving role).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from policies.decision import SHARED, Grant, PolicyDigest, Scope
from policies.thresholds import Thresholds
from retrieval.embed.ports import Embedder
from retrieval.fallback.candidates import embedded
from retrieval.settings import ResolutionSettings
from retrieval.stores.postgres.reader import PostgresReader
from retrieval.threads.keyword import question_words, score_threads, terms_of, weigh
from retrieval.threads.resolve import Resolver

_EVERYTHING: Final = """
select array(select class_id from gate.unit_class order by class_id),
       array(select distinct tenant from brain.thread union select tenant from brain.unit),
       array(select distinct jurisdiction from brain.thread
             union select jurisdiction from brain.unit)
"""

_FREQUENCIES: Final = """
select null::integer, sum(units)::bigint from brain.corpus_partial
union all
select term, sum(df)::bigint from brain.lexicon_partial where term = any(%(terms)s) group by term
"""

_POSTINGS: Final = """
select u.id, array_agg(t.term), array_agg(t.weight)
from brain.unit u
join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision
cross join lateral unnest(r.lexical_terms, r.lexical_weights) t (term, weight)
where u.deleted_at is null and u.class_id >= 0 and r.lexical_terms && %(terms)s::integer[]
  and (%(ids)s::uuid[] is null or u.id = any(%(ids)s::uuid[])) and t.term = any(%(terms)s)
group by u.id
"""


class Corpus:
    """Everything that is stored, over one connection of the worker's login."""

    def __init__(
        self, connection: AsyncConnection[Any], settings: ResolutionSettings, embedder: Embedder
    ) -> None:
        self._connection: Final = connection
        self._settings: Final = settings
        self._embedder: Final = embedder
        self._resolver: Final = Resolver(settings, model=embedder.name, embedded=self._embedded)

    async def has_thread(self, query: str, thresholds: Thresholds) -> bool:
        """Whether any thread would be found for this question by somebody who may read all.

        Raises StoreUnavailable, and IndexUnavailable when the embedder does not answer.
        """
        everything = await self._scope()
        reader = PostgresReader(
            self._connection, everything, own=everything.grant, lag_objective_s=0.0
        )
        found = await self._resolver.resolve(
            reader, query=query, reference=None, thresholds=thresholds
        )
        return bool(found.candidates)

    async def coverage(self, query: str, among: Collection[UUID] | None = None) -> float:
        """The largest share of the question's word mass that one unit has, in [0, 1].

        ``among``: of these units only. Masses are over the whole corpus either way. A question
        without telling words is about nothing: 0. Cost: an index look-up; a scan over all lexical
        forms (some 0.3 s for 100,000 units) only when the corpus has any of its words.
        """
        question = question_words(query, words_max=self._settings.words_max)
        terms = terms_of(question)
        cursor = await self._connection.execute(_FREQUENCIES, {"terms": terms})
        counted = dict(await cursor.fetchall())
        units = counted.pop(None, 0) or 0
        frequencies = {term: count for term, count in counted.items() if count > 0}
        if not frequencies:
            return 0.0
        values = {"terms": terms, "ids": None if among is None else list(among)}
        cursor = await self._connection.execute(_POSTINGS, values)
        postings = {
            unit_id: dict(zip(found, weights, strict=True))
            for unit_id, found, weights in await cursor.fetchall()
        }
        asked = weigh(question, frequencies=frequencies, threads=units)
        return max((score.coverage for score in score_threads(asked, postings)), default=0.0)

    async def _embedded(self, query: str) -> bytes | None:
        if not self._embedder.reads(query):
            return None
        return await asyncio.to_thread(embedded, self._embedder, query)

    async def _scope(self) -> Scope:
        row = await (await self._connection.execute(_EVERYTHING)).fetchone()
        classes, tenants, jurisdictions = row if row is not None else ((), (), ())
        grant = Grant(
            digest=PolicyDigest(""),
            profiles=("corpus",),
            plain=tuple(classes),
            consented=tuple(classes),
        )
        return Scope(
            grant=grant,
            tenants=tuple(sorted(set(tenants) - {SHARED})),
            jurisdictions=tuple(sorted(set(jurisdictions) - {SHARED})),
            consented_units=(),
        )
