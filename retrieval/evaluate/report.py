"""The figures of an evaluation, the baseline they are compared with, and both as JSON.

A baseline keeps each question's values, not only means: a difference is then told from chance
by the questions themselves (``measures.lost``). It belongs to one set of questions, by hash:
other questions are another set and are compared with nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from retrieval.evaluate.judged import JudgedSet, Malformed
from retrieval.evaluate.measures import MEASURES, Interval, interval, lost

FORMAT: Final = 1
COMPARED: Final = ("ndcg@10", "recall@10")
"""The measures that a loss is judged by."""
_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What retrieval did with one set. ``ranked`` and ``by_thread`` in the order of questions.

    ``by_thread``: whether threads answered rather than the fallback.
    """

    judged: JudgedSet
    ranked: Sequence[Sequence[str]]
    by_thread: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Figures:
    """``change`` is against the baseline, by compared measure; empty without one."""

    name: str
    questions: int
    unjudged: int
    by_thread: float
    measured: Mapping[str, Interval]
    change: Mapping[str, Interval]

    @property
    def losses(self) -> tuple[str, ...]:
        """The measures that are significantly worse than in the baseline."""
        return tuple(name for name, one in self.change.items() if one.high < 0)


Values = Mapping[str, Sequence[float]]


def values_of(outcome: Outcome) -> dict[str, list[float]]:
    """Each measure's value for each question."""
    pairs = list(zip(outcome.ranked, outcome.judged.questions, strict=True))
    return {
        name: [round(measure(ranked, one.relevant), _DIGITS) for ranked, one in pairs]
        for name, measure in MEASURES.items()
    }


def figures(outcome: Outcome, before: Values | None) -> Figures:
    """The means of one set with their intervals, and their change since ``before``."""
    values = values_of(outcome)
    return Figures(
        name=outcome.judged.name,
        questions=len(outcome.judged.questions),
        unjudged=outcome.judged.unjudged,
        by_thread=sum(outcome.by_thread) / len(outcome.by_thread),
        measured={name: interval(row) for name, row in values.items()},
        change={} if before is None else {n: lost(values[n], before[n]) for n in COMPARED},
    )


def baseline(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What ``known`` reads again, as JSON values. Cost: some 12 bytes a question."""
    return {
        "format": FORMAT,
        "sets": {
            one.judged.name: {
                "questions": _hash(one.judged),
                **{name: row for name, row in values_of(one).items() if name in COMPARED},
            }
            for one in outcomes
        },
    }


class Baseline:
    """A stored baseline. Raises Malformed for a file that is none."""

    def __init__(self, file: Path) -> None:
        try:
            stored = json.loads(file.read_bytes())
            if stored["format"] != FORMAT:
                raise Malformed(f"`{file}` is a baseline of another version")
            self._sets: Final[Mapping[str, Mapping[str, Any]]] = dict(stored["sets"])
        except (ValueError, KeyError, TypeError) as fault:
            if isinstance(fault, Malformed):
                raise
            raise Malformed(f"`{file}` is no baseline") from fault

    def of(self, judged: JudgedSet) -> Values | None:
        """The stored values of these very questions, or None."""
        stored = self._sets.get(judged.name)
        if stored is None or stored.get("questions") != _hash(judged):
            return None
        rows = {name: stored.get(name) for name in COMPARED}
        for name, row in rows.items():
            if not isinstance(row, list) or len(row) != len(judged.questions):
                raise Malformed(f"the baseline of `{judged.name}` has no `{name}` per question")
        return {name: [float(x) for x in row or ()] for name, row in rows.items()}


def as_json(found: Sequence[Figures]) -> list[dict[str, Any]]:
    """The figures as JSON values, losses named."""
    return [{**asdict(one), "losses": list(one.losses)} for one in found]


def _hash(judged: JudgedSet) -> str:
    told = [[one.id, one.text, one.turns, sorted(one.relevant.items())] for one in judged.questions]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
