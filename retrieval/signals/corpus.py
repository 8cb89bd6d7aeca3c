"""The whole corpus, as nobody who asks may see it: is there an answer at all?

Laws
    * Only the worker's login reads here, after the response, and what it finds goes to owners.
    * The same resolver and the same measure as for callers, over all classes and compartments.
    * Quarantined objects (class -1) are in no list, so they count as absent, as for callers.

Source: architecture section 6 (signals are classified by a separate non-serving role).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection, AsyncCursor

from policies.decision import SHARED, Grant, PolicyDigest, Scope
from retrieval.settings import ResolutionSettings
from retrieval.stores.postgres.reader import PostgresReader
from retrieval.threads.keyword import Word, question_words, score_threads, terms_of
from retrieval.threads.resolve import resolve

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


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many units there are, and how many of them have each term."""

    units: int
    by_term: dict[int, int]


class Corpus:
    """Everything that is stored, over one connection of the worker's login."""

    def __init__(self, connection: AsyncConnection[Any], settings: ResolutionSettings) -> None:
        self._connection: Final = connection
        self._settings: Final = settings

    async def has_thread(self, query: str) -> bool:
        """Whether any thread would be found for this question by somebody who may read all."""
        everything = await self._scope()
        reader = PostgresReader(
            self._connection, everything, own=everything.grant, lag_objective_s=0.0
        )
        found = await resolve(reader, query=query, reference=None, settings=self._settings)
        return bool(found.candidates)

    async def coverage(self, query: str, among: Collection[UUID] | None = None) -> float:
        """The largest share of the question's word mass that one unit has, in [0, 1].

        ``among``: of these units only. Masses are over the whole corpus either way. A question
        without telling words is about nothing: 0. Cost: an index look-up; a scan over all lexical
        forms (some 0.3 s for 100,000 units) only when its words could suffice.
        """
        question = question_words(query, words_max=self._settings.words_max)
        if not question:
            return 0.0
        terms = terms_of(question)
        frequencies = await self._frequencies(terms)
        if among is None and not frequencies.by_term:
            return 0.0
        cursor = await self._connection.execute(
            _POSTINGS, {"terms": terms, "ids": None if among is None else list(among)}
        )
        return await _best(question, cursor, frequencies)

    async def _frequencies(self, terms: list[int]) -> Frequencies:
        cursor = await self._connection.execute(_FREQUENCIES, {"terms": terms})
        counted = dict(await cursor.fetchall())
        return Frequencies(counted.pop(None, 0) or 0, {t: n for t, n in counted.items() if n > 0})

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


async def _best(
    question: tuple[Word, ...], cursor: AsyncCursor[Any], frequencies: Frequencies
) -> float:
    postings = {
        unit_id: dict(zip(terms, weights, strict=True))
        for unit_id, terms, weights in await cursor.fetchall()
    }
    scores = score_threads(
        question, postings=postings, frequencies=frequencies.by_term, threads=frequencies.units
    )
    return max((score.coverage for score in scores), default=0.0)
