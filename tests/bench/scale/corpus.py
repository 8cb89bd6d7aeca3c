"""A generated corpus of any size: the same numbers always make the same units.

Of each 1,000 units 1 is for the lowest step of a ladder of readers, 9 more are for the next, then
90, 400 and 500: the profiles read 0.1, 1, 10, 50 and 100 % at every size. Texts are words of the
sample corpus, each as often as it occurs there, so that real questions meet them. One unit in ten
belongs to a thread of ten; titles of threads are made-up words, that no question meets by accident.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import Snapshot
from retrieval.lexical import document_form, words
from tests.bench.scale.mixture import Mixture, Quantised

LADDER: Final = ("customer", "partner", "agent:reader", "employee", "agent:auditor")
SHARES: Final = (0.001, 0.01, 0.1, 0.5, 1.0)
BATCH: Final = 10_000
_STEPS: Final = (1, 9, 90, 400, 500)
_CLASSES_A_STEP: Final = 24
_TITLE_WORDS: Final = 3
_BODY_WORDS: Final = 24
_MEMBERS: Final = 10
_SAMPLE: Final = Path(__file__).resolve().parents[3] / "deploy" / "demo" / "corpus"
_SCATTER: Final = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Odd, hence a permutation of all ids: neighbours in number are no neighbours in an index."""
_GATHER: Final = pow(_SCATTER, -1, 1 << 128)


@dataclass(frozen=True, slots=True)
class Unit:
    """``step`` is the lowest of the ladder that may read it; ``vector`` is in stored form."""

    number: int
    step: int
    class_id: int
    title: str
    body: str
    terms: Sequence[int]
    weights: Sequence[float]
    vector: bytes

    @property
    def id(self) -> UUID:
        return UUID(int=(self.number + 1) * _SCATTER % (1 << 128))


@dataclass(frozen=True, slots=True)
class Thread:
    number: int
    step: int
    class_id: int
    title: str
    members: tuple[UUID, ...]

    @property
    def id(self) -> UUID:
        return UUID(int=((1 << 64) + self.number) * _SCATTER % (1 << 128))


@dataclass(frozen=True, slots=True)
class Batch:
    units: list[Unit]
    threads: list[Thread]


@dataclass(frozen=True, slots=True)
class Corpus:
    """``only`` leaves out whatever the profile of that step may not read."""

    size: int
    mixture: Mixture
    classes: tuple[tuple[int, ...], ...]
    thread_classes: tuple[int, ...]
    only: int = len(LADDER) - 1

    def batches(self) -> Iterator[Batch]:
        """All of it, 10,000 units at a time."""
        tokens = _tokens()
        for start in range(0, self.size, BATCH):
            rng = np.random.default_rng(start)
            count = min(BATCH, self.size - start)
            steps = np.resize(np.repeat(np.arange(len(_STEPS)), _STEPS), count)
            rng.shuffle(steps)
            vectors = self.mixture.draw(count, rng)
            texts = tokens[rng.integers(0, len(tokens), (count, _TITLE_WORDS + _BODY_WORDS))]
            classes = rng.integers(0, _CLASSES_A_STEP, count)
            units = [
                self._unit(start + row, int(step), int(classes[row]), texts[row], vectors[row])
                for row, step in enumerate(steps)
                if step <= self.only
            ]
            yield Batch(units, list(self._threads(start, units)))

    def _unit(
        self, number: int, step: int, drawn: int, text: NDArray[np.object_], vector: Quantised
    ) -> Unit:
        title, body = " ".join(text[:_TITLE_WORDS]), " ".join(text[_TITLE_WORDS:])
        terms, weights = document_form(title, body)
        own = self.classes[step]
        stored = vector.astype("<i2").tobytes()
        return Unit(number, step, own[drawn % len(own)], title, body, terms, weights, stored)

    def _threads(self, start: int, units: Sequence[Unit]) -> Iterator[Thread]:
        """A thread's words depend on its own step and number only, whoever else is there."""
        for step in range(self.only + 1):
            own = [unit.id for unit in units if unit.step == step]
            for nth in range(max(1, len(own) // (_MEMBERS * 10))):
                number = (start * len(_STEPS) + nth) * len(_STEPS) + step
                members = tuple(own[nth * _MEMBERS : (nth + 1) * _MEMBERS])
                yield Thread(number, step, self.thread_classes[step], _title(number), members)


def generated(size: int, mixture: Mixture, snapshot: Snapshot) -> Corpus:
    """A corpus whose classes are such that each profile of the ladder reads its share."""
    readable = [frozenset(snapshot.grant((profile,)).plain) for profile in LADDER]
    own: list[tuple[int, ...]] = []
    threads: list[int] = []
    for step in range(len(readable)):
        above = frozenset.intersection(*readable[step:])
        fresh = sorted(above - frozenset().union(*readable[:step]))
        kinds = {one: snapshot.vocabulary.facets_of(one)["kind"] for one in fresh}
        threads.append(next(one for one in fresh if kinds[one] == "thread"))
        of_units = [one for one in fresh if kinds[one] != "thread"]
        own.append(tuple(of_units[:: max(1, len(of_units) // _CLASSES_A_STEP)][:_CLASSES_A_STEP]))
    return Corpus(size, mixture, tuple(own), tuple(threads))


def number_of(unit: UUID) -> int:
    """Which unit of the corpus an id is; no unit has a number as large as a thread's."""
    return unit.int * _GATHER % (1 << 128) - 1


def _title(number: int) -> str:
    rng = np.random.default_rng(number)
    syllables = ("ka", "lo", "mi", "ru", "te", "vo", "sha", "nu", "pe", "zi", "dro", "gal")
    return " ".join(
        "".join(syllables[one] for one in rng.integers(0, len(syllables), 3)) for _ in range(3)
    )


def _tokens() -> NDArray[np.object_]:
    """Every word of the sample corpus as often as it stands there."""
    found = [
        word for file in sorted(_SAMPLE.rglob("*.md")) for word in words(file.read_text("utf-8"))
    ]
    return np.array(found, dtype=object)
