"""How well the words of a question name a thread, from the caller's own view of the words.

Theory
    A question is split into *words*. A word asks for its term as typed; only when no
    permitted thread has that, for its folded form (`café` asked of threads that say `cafe`).

    mass(word) = ln(1 + (N - df + 0.5) / (df + 0.5)), df and N over the threads that this
    caller may see, so that neither a hidden thread's words nor its existence move a score.
    A word that no permitted thread has keeps its full mass: it is what makes a question
    *not* about any of them.

    coverage(thread) = mass of the question's words that the thread has / mass of all of them
    strength(thread) = mean document weight of the matched words, by mass, in [0, 1)
    score = coverage * (1 - STRENGTH_SHARE + STRENGTH_SHARE * strength), rounded

    A share, because raw BM25 grows with the length of the question; strength only orders threads
    that cover alike. Other signals that words give (labels, words of kind) are shares of the same
    mass.

This module is pure: no store, no policy, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from retrieval.lexical import K1, document_form, folded_alternatives, query_terms, words
from retrieval.threads.function_words import FUNCTION_WORDS

DIGITS: Final = 6
"""Decimal places of every emitted score: far above float noise, far below what orders threads."""

STRENGTH_SHARE: Final = 0.25

Word = tuple[int, ...]
"""The term ids of one word of a question: as typed, then its folded form if it has one."""


@dataclass(frozen=True, slots=True)
class KeywordScore:
    """``coverage`` and ``score`` lie in [0, 1] and are rounded to ``DIGITS`` places."""

    thread_id: UUID
    coverage: float
    score: float


def thread_form(
    title: str, aliases: Iterable[str], description: str
) -> tuple[list[int], list[float]]:
    """The keyword postings of a thread: term ids (sorted, unique) and their weights.

    An alias counts like the title. Written at ingest, asked for by ``score_threads``.
    """
    return document_form("\n".join((title, *aliases)), description)


def question_words(text: str, *, words_max: int) -> tuple[Word, ...]:
    """The distinct words of a question that can be evidence, in order, at most ``words_max``."""
    distinct = dict.fromkeys(word for word in words(text) if word not in FUNCTION_WORDS)
    found = dict.fromkeys(
        (*query_terms(word), *folded_alternatives(word).values()) for word in distinct
    )
    return tuple(found)[:words_max]


def terms_of(question: Sequence[Word]) -> list[int]:
    """The term ids of all words, sorted and unique."""
    return sorted({term for word in question for term in word})


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as one caller's threads weigh it: its words, the term that each asks for, and
    its mass. ``total`` is 0 for a question without words."""

    words: tuple[Word, ...]
    terms: tuple[int, ...]
    masses: tuple[float, ...]
    total: float

    def share(self, terms: Set[int]) -> float:
        """The share of the mass whose words stand under one of these terms, in [0, 1], rounded."""
        if self.total <= 0:
            return 0.0
        met = math.fsum(
            mass
            for word, mass in zip(self.words, self.masses, strict=True)
            if not terms.isdisjoint(word)
        )
        return round(met / self.total, DIGITS)


def weigh(question: Sequence[Word], *, frequencies: Mapping[int, int], threads: int) -> Asked:
    """The question by the caller's own threads.

    ``frequencies`` maps a term to the number of permitted threads that have it (absent = 0),
    ``threads`` is the number of permitted threads.
    """
    terms = tuple(
        next((t for t in word if frequencies.get(t, 0) > 0), word[0]) for word in question
    )
    masses = tuple(_mass(frequencies.get(term, 0), threads) for term in terms)
    return Asked(tuple(question), terms, masses, math.fsum(masses))


def score_threads(asked: Asked, postings: Mapping[UUID, Mapping[int, float]]) -> list[KeywordScore]:
    """Every thread with a matching word, best first, ties by thread id.

    ``postings`` maps a permitted thread to the weights of the question's terms in it.
    Cost: words x threads with a match.
    """
    if asked.total <= 0:
        return []
    found = []
    for thread_id, weights in postings.items():
        best = [weights.get(term, 0.0) for term in asked.terms]
        matched = math.fsum(m for m, w in zip(asked.masses, best, strict=True) if w > 0)
        if matched <= 0:
            continue
        saturated = math.fsum(m * w / (K1 + 1) for m, w in zip(asked.masses, best, strict=True))
        coverage, strength = matched / asked.total, min(saturated / matched, 1.0)
        score = coverage * (1 - STRENGTH_SHARE + STRENGTH_SHARE * strength)
        found.append(KeywordScore(thread_id, round(coverage, DIGITS), round(score, DIGITS)))
    return sorted(found, key=lambda s: (-s.score, str(s.thread_id)))


def _mass(df: int, threads: int) -> float:
    """Inverse document frequency that stays positive and finite, also for df > threads."""
    df = min(df, threads)
    return math.log1p((threads - df + 0.5) / (df + 0.5))
