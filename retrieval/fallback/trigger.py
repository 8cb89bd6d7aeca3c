"""When threads do not answer and the vector path does.

Source: seed section 4.7. Pure. The third reason, ``raw_requested``, is the caller's own wish.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Reason = Literal["missing_thread", "weak_thread", "raw_requested"]


def fallback_reason(weak: Collection[bool]) -> Reason | None:
    """Why the vector path is needed, or ``None`` when threads answer.

    ``weak`` says of each permitted thread that the question may mean whether it is no basis for an
    answer. A thread that the caller named is not asked about: it is an answer in any state.
    """
    if not weak:
        return "missing_thread"
    return "weak_thread" if all(weak) else None
