"""What a ranking is worth, how sure that is, and whether it was lost.

Theory
    nDCG@10      gains discounted by log2(rank + 1), over those of the best possible order
                 (Jarvelin and Kekalainen 2002; gains are the judgements themselves)
    recall@10    share of the relevant documents that stand in the first ten
    hit@1        1 when the first one is relevant
    complete@10  1 when every relevant document stands in the first ten
    interval     of the mean over questions: percentile bootstrap over questions (Efron 1979)
    loss         of the mean: the same over each question's difference to the baseline, so that
                 hard and easy questions cancel

Pure, and repeatable to the last digit: the resamples come from a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

CUT: Final = 10
RESAMPLES: Final = 2_000
_SEED: Final = 20261130
_LOW, _HIGH = 2.5, 97.5

Ranked = Sequence[str]
Relevant = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the borders within which 95 % of its resamples lie."""

    mean: float
    low: float
    high: float


def ndcg(ranked: Ranked, relevant: Relevant) -> float:
    best = sorted(relevant.values(), reverse=True)[:CUT]
    found = [relevant.get(one, 0) for one in ranked[:CUT]]
    return _discounted(found) / _discounted(best)


def recall(ranked: Ranked, relevant: Relevant) -> float:
    return len(relevant.keys() & set(ranked[:CUT])) / len(relevant)


def first(ranked: Ranked, relevant: Relevant) -> float:
    return float(bool(ranked) and ranked[0] in relevant)


def complete(ranked: Ranked, relevant: Relevant) -> float:
    return float(relevant.keys() <= set(ranked[:CUT]))


MEASURES: Final[Mapping[str, Callable[[Ranked, Relevant], float]]] = {
    "ndcg@10": ndcg,
    "recall@10": recall,
    "hit@1": first,
    "complete@10": complete,
}


def interval(values: Sequence[float]) -> Interval:
    """The mean of some questions' values, with its 95 % interval. ``values`` is not empty."""
    means = _resampled(values)
    low, high = (float(one) for one in np.percentile(means, (_LOW, _HIGH)))
    return Interval(float(np.mean(values)), low, high)


def lost(now: Sequence[float], before: Sequence[float]) -> Interval:
    """How much the mean moved since ``before``, question by question; a loss is significant
    when ``high`` is below 0."""
    return interval([a - b for a, b in zip(now, before, strict=True)])


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def _resampled(values: Sequence[float]) -> NDArray[np.float64]:
    rng = np.random.default_rng(_SEED)
    row = np.asarray(values, dtype=np.float64)
    return np.array([row[rng.integers(0, len(row), len(row))].mean() for _ in range(RESAMPLES)])
