"""Whether a gap is one of the corpus or of what one audience may read, and what it is about.

    absent            nobody could be answered: a task for knowledge owners
    not_for_audience  somebody could: policy did what it is for, and nobody is told
    unknown           the question did not reach the worker; it stays out of every backlog

What is written about a question is its keyed hash, the controlled vocabulary that it names, and
keyed hashes of its words. A word itself is written once ``term_subjects_min`` subjects used it
within the window: then it tells of nobody.

Source: architecture section 6, seed sections 4.9 and 4.14.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from typing import Any, Final
from uuid import UUID, uuid5

from psycopg import AsyncConnection

from policies.thresholds import DEFAULTS
from retrieval.lexical import words
from retrieval.signals.corpus import Corpus
from retrieval.signals.inquiry import Inquiry
from retrieval.signals.left_out import Reason
from retrieval.signals.settings import SignalSettings
from retrieval.stores.roles import derived_key
from retrieval.threads.function_words import FUNCTION_WORDS

SUBJECT_QUESTIONS_MAX: Final = 200
"""Questions of one subject that are looked at in a turn: its flood leaves room for others."""
WORDS_MAX: Final = 32
"""Words of a question that are kept track of."""
_NAMESPACE: Final = UUID("f0b9b0b4-0f3c-4d0a-9c4d-1f2f4f9a6b52")

_MET: Final = """
select e.at, e.audience, e.query_hmac, e.consumer, e.mode, e.weak_ids = '{}',
       array(select unnest(d.unit_ids) from brain.pack_delivery d
             where d.query_id = e.id and d.delivered_at = e.at)
from brain.retrieval_metric_event e
where e.id = %(query_id)s and e.kind = 'query' and e.noted_at > now() - interval '1 hour'
"""

# Counted anew from the day's events, so that the same question asked again adds up once.
_SIGNAL: Final = """
insert into brain.search_gap_signal as s (day, dedup_key, kind, audience, classification,
    query_hmac, occurrences, subjects, first_at, last_at, met_by)
select (%(at)s at time zone 'utc')::date, brain.gap_key(%(kind)s, %(audience)s, %(query_hmac)s),
       %(kind)s, %(audience)s, %(classification)s, %(query_hmac)s, count(*),
       count(distinct e.consumer), min(e.noted_at), max(e.noted_at),
       (array_agg(e.consumer order by e.noted_at, e.consumer))[1]
from brain.retrieval_answered e
where e.kind = 'query' and e.query_hmac = %(query_hmac)s and e.audience = %(audience)s
  and e.asked = 'auto' and e.mode in ('fallback', 'none')
  and (e.at at time zone 'utc')::date = (%(at)s at time zone 'utc')::date
having count(*) > 0
on conflict (dedup_key, day) do update
    set classification = excluded.classification, occurrences = excluded.occurrences,
        subjects = excluded.subjects, last_at = excluded.last_at
returning s.dedup_key
"""

_COUNTED: Final = """
insert into brain.retrieval_metric_event (id, at, kind, query_id, request_id, consumer, audience,
    profile, policy_digest, asked, mode, query_hmac)
select %(id)s, at, 'missing_thread', id, request_id, consumer, audience, profile, policy_digest,
       asked, mode, query_hmac
from brain.retrieval_metric_event where id = %(query_id)s and kind = 'query' and at = %(at)s
on conflict do nothing
"""

_LABELS: Final = "select id, term from brain.label where deleted_at is null"

# The hash first, its use second, the word last: by then its uses say whether it may be kept.
_TERMS: Final = """
insert into brain.question_term (term_hmac) select unnest(%(terms)s::text[]) on conflict do nothing
"""
_USES: Final = """
insert into brain.question_term_use as u (term_hmac, consumer)
select unnest(%(terms)s::text[]), %(consumer)s where %(consumer)s <> repeat('0', 64)
on conflict (term_hmac, consumer) do update set last_at = now()
"""
_KNOWN: Final = """
update brain.question_term t set word = w.word
from unnest(%(terms)s::text[], %(words)s::text[]) w (term_hmac, word)
where t.term_hmac = w.term_hmac and t.word is null
  and (select count(*) from brain.question_term_use u
       where u.term_hmac = t.term_hmac and u.last_at > now() - %(window)s) >= %(enough)s
"""
_ABOUT: Final = """
insert into brain.gap_term (dedup_key, term_hmac, label_id)
select %(dedup_key)s, unnest(%(terms)s::text[]), null
union all select %(dedup_key)s, null, unnest(%(labels)s::uuid[])
on conflict do nothing
"""


class Classifier:
    """Looks at one question after the other, and keeps none."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        corpus: Corpus,
        settings: SignalSettings,
        secret: str,
    ) -> None:
        self.thresholds = DEFAULTS
        """Those of the active policy; whoever knows it sets them."""
        self._connection: Final = connection
        self._corpus: Final = corpus
        self._settings: Final = settings
        self._key: Final = derived_key("term", secret)
        self._looked: Final = Counter[str]()
        self.passed_over: Final = Counter[Reason]()
        """Questions that nobody looked at and that were not written down yet."""

    def begin_turn(self) -> None:
        """Every subject may be looked at again."""
        self._looked.clear()

    async def classify(self, inquiry: Inquiry) -> bool:
        """Writes what this question shows to be missing, if anything.

        False when nobody looked: it was never answered, or its subject has had its turn.
        Raises psycopg.Error and StoreUnavailable. Cost: two resolutions at most, ten short
        statements.
        """
        cursor = await self._connection.execute(_MET, {"query_id": inquiry.query_id})
        met = await cursor.fetchone()
        if met is None:
            return False
        at, audience, query_hmac, consumer, mode, no_thread, shown = met
        if self._looked[consumer] >= SUBJECT_QUESTIONS_MAX:
            self.passed_over["subject"] += 1
            return False
        self._looked[consumer] += 1
        gaps: dict[str, str] = {}
        if no_thread:
            found = await self._corpus.has_thread(inquiry.query, self.thresholds)
            gaps["missing_thread"] = "not_for_audience" if found else "absent"
        if mode == "none" or not await self._covers(inquiry.query, shown):
            found = await self._covers(inquiry.query)
            gaps["search_gap"] = "not_for_audience" if found else "absent"
        common = {"at": at, "audience": audience, "query_hmac": query_hmac}
        async with self._connection.transaction():
            for kind, classification in gaps.items():
                values = {**common, "kind": kind, "classification": classification}
                row = await (await self._connection.execute(_SIGNAL, values)).fetchone()
                if row is not None and classification == "absent":
                    await self._about(row[0], inquiry.query, consumer)
            if gaps.get("missing_thread") == "absent":
                one = uuid5(_NAMESPACE, str(inquiry.query_id))
                await self._connection.execute(
                    _COUNTED, {"id": one, "query_id": inquiry.query_id, "at": at}
                )
        return True

    async def _covers(self, query: str, among: list[UUID] | None = None) -> bool:
        return await self._corpus.coverage(query, among) >= self._settings.coverage_min

    async def _about(self, dedup_key: str, query: str, consumer: str) -> None:
        """What a gap is about: vocabulary by name, other words by hash until they are common."""
        asked = tuple(dict.fromkeys(w for w in words(query) if w not in FUNCTION_WORDS))[:WORDS_MAX]
        # in one order, so that two workers that hand over never wait for each other
        hashed = sorted((self._hash(word), word) for word in asked)
        named = set(words(query))
        cursor = await self._connection.execute(_LABELS)
        values = {
            "dedup_key": dedup_key,
            "consumer": consumer,
            "terms": [term for term, _ in hashed],
            "words": [word for _, word in hashed],
            "labels": [one for one, term in await cursor.fetchall() if _names(term, named)],
            "window": self._settings.window,
            "enough": self._settings.term_subjects_min,
        }
        for statement in (_TERMS, _USES, _KNOWN, _ABOUT):
            await self._connection.execute(statement, values)

    def _hash(self, word: str) -> str:
        text = word.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def _names(term: str, asked: set[str]) -> bool:
    """Whether a question holds every word of a vocabulary term."""
    needed = set(words(term))
    return bool(needed) and needed <= asked
