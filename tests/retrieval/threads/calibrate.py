"""Fits the weights of ``retrieval.threads.evidence`` anew and says what they are worth.

    python -m tests.retrieval.threads.calibrate       # two minutes on a quiet machine

A multinomial logit with "no thread" as one of the choices, by Newton's method, over the questions
of ``corpora``; weights of authority stay as they are. Every second question is held out: first the
rates on those, then the weights from all, which are the ones to write down.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import Snapshot, load
from policies.thresholds import DEFAULTS
from retrieval.schema.migrate import migrate
from retrieval.threads.evidence import AUTHORITY, NONE, Evidence, against, log_odds
from retrieval.threads.resolve import references_in
from tests.retrieval.stage import stage
from tests.retrieval.threads import corpora
from tests.retrieval.threads.corpora import Question
from tests.services import Database, VectorService, cluster_of, embedded_pair, fresh_database

SHARED: Final = Path(__file__).resolve().parents[4] / "shared" / "data"
SETS: Final = {"ferrowick": 3.0, "peps": 1.0, "near": 0.2, "off topic": 1.5}
"""What each set of questions weighs in all, whatever their number."""
_RIDGE: Final = 2e-4
_EVERYTHING: Final = -7.9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """One question: a row of signals a thread, what is fixed beside the weights, and the right
    row (the one after the last is "none")."""

    corpus: str
    set: str
    signals: Floats
    fixed: Floats
    right: int


async def cases_of(name: str, pair_url: str, api_key: str, database: Database,
                   snapshot: Snapshot) -> list[Case]:  # fmt: skip
    """Every question put to one corpus, as the product's own resolver weighs it."""
    who = corpora.fill(name, database, snapshot, SHARED)
    sets = {
        name: corpora.questions(name),
        "near": corpora.questions("near"),
        "off topic": corpora.off_topic(SHARED, every=9),
    }
    found = []
    vectors = VectorService(url=pair_url, api_key=api_key)
    embedder = corpora.real_embedder(SHARED)
    async with stage(database, vectors, snapshot, embedder=embedder) as served:
        await served.worker.drain()
        async with served.retrieval._truth.reading(who, snapshot) as reader:
            for label, asked in sets.items():
                for question in await corpora.answerable(reader, asked):
                    tokens = references_in(question.text, references_max=6)
                    weighed = await served.retrieval._resolver.weigh(
                        reader, question.text, tokens, floor=_EVERYTHING
                    )
                    rows = await reader.threads(tuple(weighed.evidence))
                    evidence = {rows[t].canonical_address: e for t, e in weighed.evidence.items()}
                    found.append(_case(name, label, question, evidence, weighed.threads))
    return found


def _case(
    corpus: str, label: str, question: Question, evidence: dict[str, Evidence], threads: int
) -> Case:
    names = sorted(evidence)
    rows = [[evidence[n].keyword, evidence[n].label, evidence[n].centroid] for n in names]
    size = against(threads) - NONE
    return Case(
        corpus,
        label,
        np.array(rows, dtype=np.float64).reshape(-1, 3),
        np.array([AUTHORITY * evidence[n].authority - size for n in names]),
        names.index(question.thread) if question.thread in names else len(names),
    )


def fit(cases: Sequence[Case]) -> Floats:
    """Weights of keyword, label and centroid, and of "none"."""
    counts = {label: sum(one.set == label for one in cases) for label in SETS}
    beta = np.zeros(4)
    for _ in range(60):
        slope, bend = _RIDGE * beta, _RIDGE * np.eye(4)
        for case in cases:
            rows = np.zeros((len(case.signals) + 1, 4))
            rows[:-1, :3], rows[:-1, 3] = case.signals, -1
            utility = rows @ beta + np.append(case.fixed, 0.0)
            share = np.exp(utility - utility.max())
            share /= share.sum()
            mean, weight = rows.T @ share, SETS[case.set] / counts[case.set]
            slope += weight * (mean - rows[case.right])
            bend += weight * ((rows * share[:, None]).T @ rows - np.outer(mean, mean))
        step = np.linalg.solve(bend, slope)
        beta = beta - step * min(1.0, 3 / max(float(np.abs(step).max()), 1e-9))
        if np.abs(step).max() < 1e-6:
            break
    return beta


def report(cases: Sequence[Case], beta: Floats) -> None:
    """Hits, and wrong ones among them, of each corpus and set; before rank."""
    floor, close = log_odds(DEFAULTS.match_percent), float(np.log(DEFAULTS.alone_odds))
    for key in sorted({(one.corpus, one.set) for one in cases}):
        mine = [one for one in cases if (one.corpus, one.set) == key]
        hits = wrong = 0
        for case in mine:
            utility = case.signals @ beta[:3] + case.fixed - beta[3]
            if not len(utility) or utility.max() < floor:
                continue
            hits += 1
            order = np.argsort(-utility)[: DEFAULTS.threads_max]
            wrong += case.right not in order[utility[order] > utility.max() - close]
        print(f"  {key[0]:9} {key[1]:9} {hits:3} of {len(mine):3} hit, {wrong} wrong")


def main() -> int:
    snapshot = load()
    cases = []
    with embedded_pair() as pair:
        cluster = cluster_of(pair)
        for name in ("ferrowick", "peps"):
            with fresh_database(cluster) as database:
                migrate(database.url, database.secret, snapshot)
                cases += asyncio.run(
                    cases_of(name, pair.qdrant_url, pair.qdrant_api_key, database, snapshot)
                )
    for start in (0, 1):
        print(f"held out, every second from {start}:")
        report(cases[start::2], fit(cases[1 - start :: 2]))
    beta = fit(cases)
    print("all:")
    report(cases, beta)
    print("KEYWORD {:.1f}, LABEL {:.1f}, NEARNESS {:.1f}, NONE {:.1f}".format(*beta))
    return 0


if __name__ == "__main__":
    sys.exit(main())
