"""When a thread answers a question, and what a reader is warned of: judged by reviewers.

Nothing here opens access; every value says how sure retrieval must be. The defaults are those
of ``rules/retrieval.yaml``, and hold for a policy that has no such file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VERDICTS: Final = ("stale", "overbroad", "too_narrow", "noisy_retrieval")
"""Verdicts on a thread's health that a policy may call weak. Source: seed section 4.3."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """``match_percent``: the least chance that a question means a thread, to take it for a hit.

    ``alone_odds``: how many times as likely as the next the best must be to answer alone; what is
    closer is offered beside it, ``threads_max`` in all. ``weak``: verdicts with which a thread is
    no basis for an answer. ``subjects_min``: how many subjects of one audience must say the same
    before it changes a thread's health for that audience. A membership is suspect below
    ``confidence_percent``, and for ``wrong_link_days`` after it was declared wrong.
    """

    match_percent: int = 40
    alone_odds: int = 4
    threads_max: int = 3
    weak: tuple[str, ...] = VERDICTS
    subjects_min: int = 5
    confidence_percent: int = 60
    wrong_link_days: int = 90


DEFAULTS: Final = Thresholds()
