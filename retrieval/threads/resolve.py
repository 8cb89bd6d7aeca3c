"""From a question to the threads that it may mean.

Laws
    * An explicit reference (in the request, or standing in the question as an id or address)
      decides alone. A reference to a hidden thread and one to no thread are the same thing:
      the question goes on as if the reference were not there.
    * Each of the five signals is made from threads, labels, units and sums that this caller may
      see, and from no others; so are the weights of words and the number of threads.
    * A candidate keeps its score and what it is made of.

Source: seed section 4.2. How the signals are weighed: ``evidence``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from policies.thresholds import Thresholds
from retrieval.context_pack import Signal
from retrieval.errors import IndexUnavailable
from retrieval.settings import ResolutionSettings
from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import ThreadRow
from retrieval.threads.centroid import Centroids, Near
from retrieval.threads.evidence import (
    AUTHORITY,
    KIND_SHARE,
    NEARNESS,
    NEARNESS_UNMEASURED,
    Evidence,
    against,
    chance,
    log_odds,
)
from retrieval.threads.hints import KINDS_OF_TERM
from retrieval.threads.keyword import DIGITS, Asked, question_words, score_threads, terms_of, weigh
from retrieval.threads.parts import permitted_parts

log = logging.getLogger(__name__)

_WRAPPING: Final = ".,;!?…'\"`´‘’“”«»()[]{}<>"
_ADDRESS_MARK: Final = re.compile(r"[:/#_0-9-]")
_ADDRESS_MAX: Final = 300
_SURE: Final = 60.0
"""The utility of a thread that was named: its chance rounds to one."""

_SURE_OF_NONE: Final = 8.0
"""Below minus this no threshold of a policy lies (1 % is 4.6), words of kind included."""

Embedding = Callable[[str], Awaitable[bytes | None]]
"""The stored vector of a question; ``None`` when the model cannot read it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A permitted thread that a question may mean. ``score`` is the chance that it does, in
    [0, 1], ``utility`` the logarithm of its odds."""

    thread: ThreadRow
    score: float
    signals: tuple[Signal, ...]
    utility: float = _SURE


@dataclass(frozen=True, slots=True)
class Resolution:
    """Candidates above the policy's threshold, likeliest first. ``explicit``: the caller named
    them, so no threshold applies. ``degraded``: the embedder did not answer, so nothing was found
    by nearness."""

    explicit: bool
    candidates: tuple[Candidate, ...]
    degraded: bool = False


@dataclass(slots=True)
class Weighed:
    """A question, and what speaks for each thread that anything speaks for. ``threads``: how many
    the caller may see. ``degraded``: the embedder did not answer."""

    asked: Asked
    threads: int
    degraded: bool = False
    evidence: dict[UUID, Evidence] = field(default_factory=dict)
    rows: dict[UUID, ThreadRow] = field(default_factory=dict)

    def note(self, thread: UUID, **signals: float) -> None:
        known = self.evidence.setdefault(thread, Evidence())
        for signal, value in signals.items():
            setattr(known, signal, value)


class Resolver:
    """Resolves questions; one per process and event loop. ``model`` names the embedder."""

    def __init__(self, settings: ResolutionSettings, *, model: str, embedded: Embedding) -> None:
        self._settings: Final = settings
        self._model: Final = model
        self._nearness: Final = NEARNESS.get(model, NEARNESS_UNMEASURED)
        self._embedded: Final = embedded
        self._centroids: Final = Centroids()

    async def resolve(
        self,
        reader: TruthReader,
        *,
        query: str,
        reference: str | None,
        thresholds: Thresholds,
        exclude: frozenset[UUID] = frozenset(),
    ) -> Resolution:
        """The permitted threads that a question may mean; none is a normal outcome.

        Cost: one embedding and four queries; one more for words of kind, one for addresses, one
        per reference that is tried.
        """
        tokens = references_in(query, references_max=self._settings.references_max)
        named = await self._named(reader, reference, tokens, thresholds.threads_max)
        if named:
            return Resolution(explicit=True, candidates=named)
        floor = log_odds(thresholds.match_percent)
        found = await self.weigh(reader, query, tokens, floor=floor, exclude=exclude)
        return Resolution(False, await self._above(reader, found, floor), found.degraded)

    async def weigh(
        self,
        reader: TruthReader,
        query: str,
        tokens: Collection[str],
        *,
        floor: float,
        exclude: frozenset[UUID] = frozenset(),
    ) -> Weighed:
        """What speaks for the threads that a question may mean; of those that stay below ``floor``
        (a utility) some signals may be missing. ``tokens`` may be addresses of units."""
        embedding = asyncio.ensure_future(self._vector(query))
        try:
            found = await self._by_words(reader, query)
            if tokens:
                for thread in await reader.anchored(tokens):
                    found.note(thread, authority=1.0)
            vector, found.degraded = await embedding
        finally:
            embedding.cancel()
        if vector is not None:
            await self._by_centroid(reader, found, vector, exclude)
        await self._by_kind(reader, found, floor, exclude)
        return found

    async def _vector(self, query: str) -> tuple[bytes | None, bool]:
        """The question's vector, and whether the embedder failed to give one."""
        try:
            return await self._embedded(query), False
        except IndexUnavailable as fault:
            log.warning("resolving without the embedder: %s", fault)
            return None, True

    async def _named(
        self, reader: TruthReader, reference: str | None, tokens: Collection[str], most: int
    ) -> tuple[Candidate, ...]:
        if reference is not None:
            candidate = await by_reference(reader, reference)
            if candidate is not None:
                return (candidate,)
        found: dict[UUID, Candidate] = {}
        for token in tokens:
            candidate = await by_reference(reader, token)
            if candidate is not None:
                found.setdefault(candidate.thread.id, candidate)
        return tuple(found.values())[:most]

    async def _by_words(self, reader: TruthReader, query: str) -> Weighed:
        """Keywords and labels."""
        question = question_words(query, words_max=self._settings.words_max)
        terms = terms_of(question)
        frequencies = await reader.thread_document_frequencies(terms)
        asked = weigh(question, frequencies=frequencies.by_term, threads=frequencies.documents)
        found = Weighed(asked, frequencies.documents)
        if not terms:
            return found
        matches = {m.thread.id: m for m in await reader.threads_for_terms(terms)}
        postings = {thread_id: match.weights for thread_id, match in matches.items()}
        for score in score_threads(asked, postings):
            found.note(score.thread_id, keyword=score.score)
            found.rows[score.thread_id] = matches[score.thread_id].thread
        labelled: dict[UUID, set[int]] = {}
        for match in await reader.labelled(terms):
            labelled.setdefault(match.thread_id, set()).update(match.terms)
        for thread, explained in labelled.items():
            found.note(thread, label=asked.share(explained))
        return found

    async def _by_centroid(
        self, reader: TruthReader, found: Weighed, vector: bytes, exclude: frozenset[UUID]
    ) -> None:
        """Nearness to every thread, or only to those found so far when there are very many."""
        few = found.threads <= self._settings.centroids_max
        near = await self._centroids.near(
            reader,
            vector,
            model=self._model,
            thread_ids=None if few else tuple(found.evidence),
            exclude=exclude,
        )
        for thread, cosine in self._worth_noting(near, found):
            found.note(thread, centroid=cosine)

    async def _by_kind(
        self, reader: TruthReader, found: Weighed, floor: float, exclude: frozenset[UUID]
    ) -> None:
        """Words of kind, for threads that they could lift above the floor."""
        wanted = {
            term: KINDS_OF_TERM[term] for word in found.asked.words for term in word
            if term in KINDS_OF_TERM
        }  # fmt: skip
        if not wanted:
            return
        lift = AUTHORITY * KIND_SHARE
        near = self._best(found, floor - lift)
        kinds: dict[UUID, set[str]] = {}
        for part in await permitted_parts(reader, near, exclude=exclude):
            kinds.setdefault(part.thread_id, set()).add(part.kind)
        for thread in near:
            if found.evidence[thread].authority == 0:
                met = {t for t, asks in wanted.items() if asks & kinds.get(thread, set())}
                share = round(KIND_SHARE * found.asked.share(met), DIGITS)
                found.note(thread, authority=share)

    async def _above(
        self, reader: TruthReader, found: Weighed, floor: float
    ) -> tuple[Candidate, ...]:
        best = self._best(found, floor)
        missing = [thread for thread in best if thread not in found.rows]
        rows: Mapping[UUID, ThreadRow] = found.rows | dict(await reader.threads(missing))
        candidates = []
        for thread in best:
            evidence = found.evidence[thread]
            utility = self._utility(found, thread)
            candidates.append(Candidate(rows[thread], chance(utility), evidence.breakdown, utility))
        return tuple(candidates)

    def _best(self, found: Weighed, floor: float) -> list[UUID]:
        """The threads whose utility reaches the floor, best first, at most the shortlist."""
        utilities = {thread: self._utility(found, thread) for thread in found.evidence}
        reached = [thread for thread, utility in utilities.items() if utility >= floor]
        reached.sort(key=lambda thread: (-utilities[thread], thread.int))
        return reached[: self._settings.shortlist]

    def _utility(self, found: Weighed, thread: UUID) -> float:
        return found.evidence[thread].utility(found.threads, self._nearness)

    def _worth_noting(self, near: Near, found: Weighed) -> Iterator[tuple[UUID, float]]:
        """Cosines of threads found by words, and those that could reach any threshold alone."""
        alone = (against(found.threads) - _SURE_OF_NONE) / self._nearness
        for thread, cosine in zip(near.thread_ids, near.cosines.tolist(), strict=True):
            if cosine > 0 and (cosine >= alone or thread in found.evidence):
                yield thread, cosine


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


def _tokens(query: str) -> Iterator[str]:
    for raw in query.split():
        token = raw.strip(_WRAPPING).rstrip(":")
        if 0 < len(token) <= _ADDRESS_MAX and _ADDRESS_MARK.search(token):
            yield token
