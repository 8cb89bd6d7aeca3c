"""When threads do not answer and the vector path does.

Source: seed section 4.7. Pure. The third reason, ``raw_requested``, is the caller's own wish.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from retrieval.threads.health import WEAK, Status

Reason = Literal["missing_thread", "weak_thread", "raw_requested"]


def fallback_reason(threads: Collection[Status]) -> Reason | None:
    """Why the vector path is needed, or ``None`` when threads answer.

    ``threads`` are the verdicts on the permitted threads that the question may mean. A thread
    that the caller named is not asked about: it is an answer whatever its verdict.
    """
    if not threads:
        return "missing_thread"
    return "weak_thread" if WEAK.issuperset(threads) else None
