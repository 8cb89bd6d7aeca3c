"""From a question to the threads that it may mean.

Laws
    * An explicit reference (in the request, or standing in the question as an id or address)
      decides alone. A reference to a hidden thread and one to no thread are the same thing:
      the question goes on as if the reference were not there.
    * Keywords count over threads that this caller may see, and over no others.
    * A candidate keeps its score and what it is made of.

Source: seed section 4.2. Labels, centroids and authority hints are later signals of the same
shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from retrieval.contract import Signal
from retrieval.settings import ResolutionSettings
from retrieval.stores.ports import TruthReader
from retrieval.threads.keyword import question_words, score_threads, terms_of
from retrieval.threads.rank import Candidate

_WRAPPING: Final = ".,;!?…'\"`´‘’“”«»()[]{}<>"
_ADDRESS_MARK: Final = re.compile(r"[:/#_0-9-]")
_ADDRESS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Resolution:
    """Candidates, best first. ``explicit``: the caller named them, so no threshold applies."""

    explicit: bool
    candidates: tuple[Candidate, ...]


async def resolve(
    reader: TruthReader, *, query: str, reference: str | None, settings: ResolutionSettings
) -> Resolution:
    """The permitted threads that a question may mean; none is a normal outcome.

    Cost: two queries for keywords, one per reference that is tried.
    """
    named = await _named(reader, query, reference, settings)
    if named:
        return Resolution(explicit=True, candidates=named)
    return Resolution(explicit=False, candidates=await _by_keyword(reader, query, settings))


async def by_reference(reader: TruthReader, reference: str) -> Candidate | None:
    """The permitted thread of this id or canonical address."""
    thread = await reader.thread_by_reference(reference)
    if thread is None:
        return None
    return Candidate(thread, 1.0, (Signal(source="explicit", score=1.0),))


def references_in(query: str, *, references_max: int) -> tuple[str, ...]:
    """The tokens of a question that could be an id or an address, in order, without repeats.

    A token counts when it holds a digit or one of ``: / # _ -``; a plain word is a keyword.
    """
    found = dict.fromkeys(_tokens(query))
    return tuple(found)[:references_max]


async def _named(
    reader: TruthReader, query: str, reference: str | None, settings: ResolutionSettings
) -> tuple[Candidate, ...]:
    if reference is not None:
        candidate = await by_reference(reader, reference)
        if candidate is not None:
            return (candidate,)
    found: dict[UUID, Candidate] = {}
    for token in references_in(query, references_max=settings.references_max):
        candidate = await by_reference(reader, token)
        if candidate is not None:
            found.setdefault(candidate.thread.id, candidate)
    return tuple(found.values())[: settings.threads_max]


async def _by_keyword(
    reader: TruthReader, query: str, settings: ResolutionSettings
) -> tuple[Candidate, ...]:
    question = question_words(query, words_max=settings.words_max)
    if not question:
        return ()
    terms = terms_of(question)
    matches = {m.thread.id: m for m in await reader.threads_for_terms(terms)}
    if not matches:
        return ()
    frequencies = await reader.thread_document_frequencies(terms)
    scores = score_threads(
        question,
        postings={thread_id: match.weights for thread_id, match in matches.items()},
        frequencies=frequencies.by_term,
        threads=frequencies.documents,
    )
    hits = [score for score in scores if score.coverage >= settings.coverage_min]
    return tuple(
        Candidate(
            matches[hit.thread_id].thread, hit.score, (Signal(source="keyword", score=hit.score),)
        )
        for hit in hits[: settings.shortlist]
    )


def _tokens(query: str) -> Iterator[str]:
    for raw in query.split():
        token = raw.strip(_WRAPPING).rstrip(":")
        if 0 < len(token) <= _ADDRESS_MAX and _ADDRESS_MARK.search(token):
            yield token
