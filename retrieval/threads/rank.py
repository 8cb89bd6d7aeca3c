"""The order of candidate threads, and whether one of them stands alone.

Theory
    worth = utility + RECENCY * recency + AUTHORITY * authority + CHAIN * chain
            - WEAK if the thread's verdict is weak

    ``utility``   relevance, the log-odds of resolution
    ``recency``   2 ** (-days behind the most recently active candidate / 180)
    ``authority`` of its strongest part: enacted 1, draft 1/2, runtime 0
    ``chain``     share of the lifecycle stages expected of it that it has: the stages of its
                  expected artifacts; law to incident for a thread that expects none

    All in log-odds, so that a policy can say how many times likelier the best must be. Each of the
    three can turn odds by a factor of 1.35 and no more: they order threads that a question may mean
    alike. Ties: last activity, authority, canonical address.

Everything comes from parts, artifacts and feedback that this caller may see. No clock: recency is
among the candidates. Source: seed section 4.3. Pure but for ``standings``, which reads.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from policies.thresholds import Thresholds
from retrieval.pack.order import AUTHORITY_ORDER
from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import ArtifactRow, FeedbackRow, PartialRow
from retrieval.threads.health import Status, Verdict, combine, with_feedback
from retrieval.threads.keyword import DIGITS
from retrieval.threads.parts import permitted_parts
from retrieval.threads.resolve import Candidate

RECENCY: Final = 0.3
AUTHORITY: Final = 0.3
CHAIN: Final = 0.3
WEAK: Final = 2.0
"""A weak thread is as likely as a sound one only with seven times its odds."""
HALF_LIFE_DAYS: Final = 180
STAGES: Final = frozenset({"law", "design", "code", "test", "report", "incident"})

_AUTHORITY_WORTH: Final = {"enacted": 1.0, "draft": 0.5, "runtime": 0.0}


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate with what ranks it. ``empty``: it holds nothing that this caller may read."""

    candidate: Candidate
    verdict: Verdict
    last_activity: datetime | None
    authority: str
    chain: float
    empty: bool

    @property
    def status(self) -> Status:
        """The verdict, for this caller: a thread that holds nothing for it is too narrow."""
        return Status.TOO_NARROW if self.empty else self.verdict.status

    def weak(self, thresholds: Thresholds) -> bool:
        """Whether it is no basis for an answer by itself (seed 4.7)."""
        return self.empty or self.verdict.status in thresholds.weak


def activity(parts: Sequence[PartialRow]) -> datetime | None:
    """The latest activity over permitted parts of one thread."""
    return max((p.last_activity for p in parts if p.last_activity is not None), default=None)


async def standings(
    reader: TruthReader, candidates: Sequence[Candidate], *, exclude: frozenset[UUID]
) -> list[Standing]:
    """What ranks each candidate, in the same order. Cost: four queries for all of them."""
    ids = [candidate.thread.id for candidate in candidates]
    if not ids:
        return []
    parts = await permitted_parts(reader, ids, exclude=exclude)
    artifacts = await reader.artifacts(ids)
    feedback = {row.thread_id: row for row in await reader.feedback(ids)}
    filled = {
        link.thread_id
        for link in await reader.members(ids)
        if link.unit_id not in exclude and link.status != "wrong_link"
    }
    return [
        _standing(
            candidate,
            [part for part in parts if part.thread_id == candidate.thread.id],
            [one for one in artifacts if one.thread_id == candidate.thread.id],
            feedback.get(candidate.thread.id),
            empty=candidate.thread.id not in filled,
        )
        for candidate in candidates
    ]


def chosen(standings: Sequence[Standing], thresholds: Thresholds) -> list[Candidate]:
    """The threads to answer from, best first, at most ``threads_max`` of the policy.

    One when it stands alone by the policy's odds, several when they are close. Threads without
    anything readable are never among them.
    """
    held = [one for one in standings if not one.empty]
    newest = max((one.last_activity for one in held if one.last_activity), default=None)
    worths = {one.candidate.thread.id: _worth(one, newest, thresholds) for one in held}
    held.sort(key=lambda one: (-worths[one.candidate.thread.id], *_tie(one)))
    if not held:
        return []
    edge = worths[held[0].candidate.thread.id] - math.log(thresholds.alone_odds)
    close = [one.candidate for one in held if worths[one.candidate.thread.id] > edge]
    return (close or [held[0].candidate])[: thresholds.threads_max]


def chain_coverage(present: Collection[str], expected: Collection[str]) -> float:
    """The share of the expected stages that are present; the whole chain where none is."""
    wanted = (set(expected) - {"other"}) or STAGES
    return len(wanted & set(present)) / len(wanted)


def _standing(
    candidate: Candidate,
    parts: Sequence[PartialRow],
    artifacts: Sequence[ArtifactRow],
    feedback: FeedbackRow | None,
    *,
    empty: bool,
) -> Standing:
    known = [part.authority for part in parts if part.authority in AUTHORITY_ORDER]
    return Standing(
        candidate=candidate,
        verdict=with_feedback(combine(part.health for part in parts), feedback),
        last_activity=activity(parts),
        authority=min(
            known, key=AUTHORITY_ORDER.__getitem__, default=candidate.thread.facets.authority
        ),
        chain=chain_coverage(
            frozenset[str]().union(*(part.stages for part in parts)),
            {artifact.lifecycle_stage for artifact in artifacts},
        ),
        empty=empty,
    )


def _worth(standing: Standing, newest: datetime | None, thresholds: Thresholds) -> float:
    behind = (
        (newest - standing.last_activity).total_seconds() / 86_400
        if newest is not None and standing.last_activity is not None
        else math.inf
    )
    worth = (
        standing.candidate.utility
        + RECENCY * 2 ** (-behind / HALF_LIFE_DAYS)
        + AUTHORITY * _AUTHORITY_WORTH.get(standing.authority, 0.0)
        + CHAIN * standing.chain
        - (WEAK if standing.weak(thresholds) else 0.0)
    )
    return round(worth, DIGITS)


def _tie(standing: Standing) -> tuple[float, int, str]:
    last = standing.last_activity
    return (
        -last.timestamp() if last is not None else math.inf,
        AUTHORITY_ORDER.get(standing.authority, len(AUTHORITY_ORDER)),
        standing.candidate.thread.canonical_address,
    )
