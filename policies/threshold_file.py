"""Reads ``rules/retrieval.yaml``: the thresholds of retrieval. A policy may do without it."""

from __future__ import annotations

from typing import Final

from policies.faults import Faults
from policies.thresholds import VERDICTS, Thresholds
from policies.yamltree import Node, Reader

FILE: Final = "rules/retrieval.yaml"
BOUNDS: Final = {
    "resolution": {"match_percent": (1, 99), "alone_odds": (1, 100), "threads_max": (1, 10)},
    "feedback": {"subjects_min": (2, 1_000)},
    "suspects": {"confidence_percent": (0, 100), "wrong_link_days": (0, 3_650)},
}
"""Section, key: the least and the greatest value. One subject alone never moves a verdict."""


def read_thresholds(tree: Node, faults: Faults) -> Thresholds:
    """The thresholds; what is wrong with them is in ``faults``."""
    read = Reader(faults)
    top = read.fields(tree, required=(*BOUNDS, "weak"))
    numbers: dict[str, int] = {}
    for section, bounds in BOUNDS.items():
        for key, node in read.fields(top[section], required=tuple(bounds)).items():
            low, high = bounds[key]
            numbers[key] = read.integer(node, key, low=low, high=high)
    return Thresholds(weak=read.words(top["weak"], "verdict", VERDICTS), **numbers)
