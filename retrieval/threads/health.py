"""The last health verdict of a thread, from the parts that this caller may see.

Each part (thread, class, compartment) keeps its own verdict under ``health``:
``{"status": "stale", "checked_at": "2026-05-15T09:00:00+00:00"}``. A thread's verdict is the
worst over the permitted parts, so that no hidden unit's state shows, and its time the latest
check among them. Two verdicts are of a part alone: a thread is as fresh as its freshest part, so
``stale`` must hold for every checked one, and as broad as all of them together, so ``too_narrow``
holds only where one part is all that was checked: each further one brings a unit. A part
without a verdict says nothing; a verdict that cannot be read counts as ``unknown``, which is
worse than ``healthy``: what is not understood is not called sound.

This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from retrieval.stores.rows import FeedbackRow


class Status(StrEnum):
    """Verdicts in rising order of severity. Source: seed section 4.3."""

    HEALTHY = "healthy"
    UNKNOWN = "unknown"
    TOO_NARROW = "too_narrow"
    OVERBROAD = "overbroad"
    NOISY_RETRIEVAL = "noisy_retrieval"
    STALE = "stale"


_WHOLE: Final = frozenset({Status.STALE, Status.TOO_NARROW})
_SEVERITY: Final = {status: rank for rank, status in enumerate(Status)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """``checked_at`` is null when no permitted part was ever checked."""

    status: Status
    checked_at: datetime | None


def combine(parts: Iterable[Mapping[str, object]]) -> Verdict:
    """The verdict over the ``health`` objects of the permitted parts."""
    statuses: list[Status] = []
    times: list[datetime] = []
    for part in parts:
        if not part:
            continue
        statuses.append(_status(part.get("status")))
        checked = _time(part.get("checked_at"))
        if checked is not None:
            times.append(checked)
    if not statuses:
        return Verdict(Status.UNKNOWN, None)
    telling = [status for status in statuses if status not in _WHOLE] or [_alone(statuses)]
    return Verdict(max(telling, key=_SEVERITY.__getitem__), max(times, default=None))


def _alone(statuses: Collection[Status]) -> Status:
    """The verdict over parts of which each is stale or, though fresh, too narrow by itself."""
    if set(statuses) == {Status.STALE}:
        return Status.STALE
    return Status.TOO_NARROW if len(statuses) == 1 else Status.HEALTHY


def with_feedback(verdict: Verdict, feedback: FeedbackRow | None) -> Verdict:
    """The verdict with what the caller's own audience found of the thread.

    Readers can worsen a verdict, and be the only ones who have one; sound to them is not sound to
    whoever checked the thread.
    """
    if feedback is None:
        return verdict
    said = combine([{"status": feedback.status, "checked_at": feedback.checked_at.isoformat()}])
    if verdict == Verdict(Status.UNKNOWN, None):
        return said
    times = [moment for moment in (verdict.checked_at, said.checked_at) if moment is not None]
    worse = max(verdict.status, said.status, key=_SEVERITY.__getitem__)
    return Verdict(worse, max(times, default=None))


def _status(word: object) -> Status:
    return Status(word) if isinstance(word, str) and word in _SEVERITY else Status.UNKNOWN


def _time(text: object) -> datetime | None:
    """A time with a zone, in UTC; anything else is no time."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment is not None and moment.tzinfo is not None else None
