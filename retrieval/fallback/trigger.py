"""When threads do not answer and the vector path does: the three reasons, in their order.

Source: seed section 4.7. Pure; thresholds come from the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Reason = Literal["missing_thread", "weak_thread", "raw_requested"]
HealthStatus = Literal["healthy", "stale", "overbroad", "too_narrow", "noisy_retrieval", "unknown"]

WEAK: Final = frozenset({"stale", "overbroad", "too_narrow", "noisy_retrieval"})
"""Verdicts under which a thread alone is no answer. ``unknown`` is none: absence of a verdict
says nothing against a thread."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A permitted thread that the query resolved to. ``explicit``: the caller named it."""

    score: float
    health: HealthStatus
    explicit: bool


def fallback_reason(
    threads: Sequence[Resolved], *, raw_requested: bool, score_min: float
) -> Reason | None:
    """Why the vector path is needed, or ``None`` when threads answer.

    ``threads`` are the permitted ones only, in any order. A thread that the caller named is
    an answer whatever its score; its health is shown in its pack.
    """
    if raw_requested:
        return "raw_requested"
    strong = [thread for thread in threads if thread.explicit or thread.score >= score_min]
    if not strong:
        return "missing_thread"
    if all(thread.health in WEAK and not thread.explicit for thread in strong):
        return "weak_thread"
    return None
