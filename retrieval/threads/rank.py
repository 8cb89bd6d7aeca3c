"""The order of candidate threads, and whether one of them stands alone.

Source: seed section 4.3: relevance, recency of last activity, authority, health, coverage of
the lifecycle. Here relevance (lowered for a weak thread) decides and the others break ties;
their weights are a later calibration. Everything comes from permitted parts.

Pure but for ``standings``, which reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from retrieval.contract import Signal
from retrieval.pack.order import AUTHORITY_ORDER
from retrieval.settings import ResolutionSettings
from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import PartialRow, ThreadRow
from retrieval.threads.health import Status, Verdict, combine
from retrieval.threads.keyword import DIGITS

WEAK_FACTOR: Final = 0.7
"""What a weak thread's relevance is worth beside a sound one's."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A permitted thread that a question may mean. ``score`` is its relevance in [0, 1]."""

    thread: ThreadRow
    score: float
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate with what ranks it. ``empty``: it holds nothing that this caller may read."""

    candidate: Candidate
    verdict: Verdict
    last_activity: datetime | None
    stages: int
    empty: bool

    @property
    def status(self) -> Status:
        """The verdict, for this caller: a thread that holds nothing for it is too narrow."""
        return Status.TOO_NARROW if self.empty else self.verdict.status

    @property
    def worth(self) -> float:
        factor = WEAK_FACTOR if self.verdict.weak else 1.0
        return round(self.candidate.score * factor, DIGITS)


def activity(parts: Sequence[PartialRow]) -> datetime | None:
    """The latest activity over permitted parts of one thread."""
    return max((p.last_activity for p in parts if p.last_activity is not None), default=None)


async def standings(
    reader: TruthReader, candidates: Sequence[Candidate], *, exclude: frozenset[UUID]
) -> list[Standing]:
    """What ranks each candidate, in the same order. Cost: two queries for all of them."""
    ids = [candidate.thread.id for candidate in candidates]
    parts = await reader.partials(ids)
    filled = {
        link.thread_id
        for link in await reader.members(ids)
        if link.unit_id not in exclude and link.status != "wrong_link"
    }
    found = []
    for candidate in candidates:
        mine = [part for part in parts if part.thread_id == candidate.thread.id]
        found.append(
            Standing(
                candidate=candidate,
                verdict=combine(part.health for part in mine),
                last_activity=activity(mine),
                stages=len(frozenset[str]().union(*(part.stages for part in mine))),
                empty=candidate.thread.id not in filled,
            )
        )
    return found


def chosen(standings: Sequence[Standing], settings: ResolutionSettings) -> list[Candidate]:
    """The threads to answer from, best first, at most ``threads_max``.

    One when it stands alone by the margin, several when they are close.
    """
    ranked = sorted((one for one in standings if not one.empty), key=_key)
    edge = round(ranked[0].worth - settings.margin, DIGITS) if ranked else 0.0
    close = [standing.candidate for standing in ranked if standing.worth > edge]
    return close[: settings.threads_max]


def _key(standing: Standing) -> tuple[float, float, int, int, str]:
    thread, last = standing.candidate.thread, standing.last_activity
    return (
        -standing.worth,
        -last.timestamp() if last is not None else float("inf"),
        AUTHORITY_ORDER.get(thread.facets.authority, len(AUTHORITY_ORDER)),
        -standing.stages,
        thread.canonical_address,
    )
