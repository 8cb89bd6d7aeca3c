"""How retrieval grows with the corpus, for readers of 0.1 to 100 % of it; wardowl beside it.

Every figure is of the whole service as the gateway calls it (``Retrieval.ask``): real embedder,
real Postgres with row-level security, the embedded vector engine. Sizes by ``RETRIEVAL_SIZES``
(``10000,100000`` when not given), shares of it by ``RETRIEVAL_SHARES`` (``0.001,1`` for two of the
five). What is found is compared with an exhaustive search over what the reader may see. On a busy
machine processor time tells more than the clock.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import uvloop
from rich.console import Console

from gateway.settled import settle
from policies.snapshot import Snapshot, load
from retrieval.contract import Answer
from retrieval.embed.ports import Embedder
from retrieval.embed.registry import embedder
from retrieval.fallback.candidates import embedded, search
from retrieval.stores.points import DenseSearch
from tests.bench.decide_peers import PeerFailed
from tests.bench.machine import cpu_seconds, described
from tests.bench.questions import QUESTIONS
from tests.bench.scale.corpus import LADDER, SHARES, Batch, Corpus, generated
from tests.bench.scale.exact import Exhaustive
from tests.bench.scale.figures import Series, milliseconds, recall, told
from tests.bench.scale.interference import compared
from tests.bench.scale.load import PEER
from tests.bench.scale.mixture import fitted
from tests.bench.scale.peer import Peer, peer
from tests.bench.scale.service import Service, opened
from tests.bench.scale.stock import Stock, stocked

SIZES: Final = "10000,100000"
TOP: Final = 10
_TITLES: Final = 48
_SMALL: Final = 10_000
"""Units of the corpus that is asked with and without what is hidden."""

Vectors = Mapping[str, bytes]
"""Questions that the embedder found something in, with their stored vectors."""


def run(out: Console, rounds: int) -> dict[str, Any]:
    _wanted()  # a wrong share is told before an hour of loading
    sizes = sorted({int(one) for one in os.environ.get("RETRIEVAL_SIZES", SIZES).split(",")})
    snapshot, mixture, model = load(), fitted(), embedder()
    vectors = {text: row for text in QUESTIONS if (row := embedded(model, text)) is not None}
    small = generated(min(sizes[0], _SMALL), mixture, snapshot)
    interference = compared(small, snapshot, model, vectors)
    found: dict[str, Any] = {}
    for size in sizes:
        corpus = generated(size, mixture, snapshot)
        found[str(size)] = _Size(corpus, snapshot, model, vectors, rounds).measured(out)
    figures = {
        "mixture": mixture.source,
        "readers": LADDER,
        "shares": SHARES,
        "questions": len(QUESTIONS),
        "rounds": rounds,
        "sizes": found,
        "non_interference": interference,
    }
    return {**figures, **told(out, figures)}


@dataclass(slots=True)
class _Size:
    """One corpus: filled, asked by every reader, compared with what should be found."""

    corpus: Corpus
    snapshot: Snapshot
    model: Embedder
    vectors: Vectors
    rounds: int
    titles: list[tuple[int, str]] = field(default_factory=list)

    def measured(self, out: Console) -> dict[str, Any]:
        exact = Exhaustive(self.corpus.size, self.model.dims)

        def also(batch: Batch) -> None:
            exact.add(batch)
            self.titles.extend((one.step, one.title) for one in batch.threads)

        with stocked(self.corpus, self.snapshot, self.model, also) as stock:
            rates = stock.spent.rates()
            out.print(f"{self.corpus.size:,} units loaded, a second: {rates}")
            settle()  # as `gateway serve` does
            steps = uvloop.run(self._asked(out, stock, exact))
        return {
            "units": stock.spent.units,
            "threads": stock.spent.threads,
            "units_a_second": rates,
            **steps,
            "load_after": described()["load_average"],
        }

    async def _asked(self, out: Console, stock: Stock, exact: Exhaustive) -> dict[str, Any]:
        async with opened(stock.database, stock.vectors, self.snapshot, self.model) as service:
            seconds = await _swept(service)
            out.print(f"swept in {seconds:.1f} s, nothing to mend")
            with peer(stock.vectors, self.model.dims) as other:
                steps = {}
                for step, share in enumerate(SHARES):
                    if share not in _wanted():
                        continue
                    steps[str(share)] = await self._step(service, exact, other, step)
                    out.print(f"{self.corpus.size:,} units, {share:.1%} readable: measured")
        return {"sweep_s": round(seconds, 1), "steps": steps}

    async def _step(
        self, service: Service, exact: Exhaustive, other: Peer | None, step: int
    ) -> dict[str, Any]:
        classes = self.snapshot.grant((LADDER[step],)).plain
        forbidden: set[UUID] = set()

        async def asked(texts: Sequence[str], *, raw: bool = False) -> dict[str, Any]:
            series, seen = await _series(service, step, texts, self.rounds, raw=raw)
            forbidden.update(exact.forbidden(seen, classes))
            return series.figures()

        known = [title for lowest, title in self.titles if lowest <= step]
        found = {
            "fallback": await asked(QUESTIONS, raw=True),
            "automatic": await asked(QUESTIONS),
            "thread": await asked(known[:: max(1, len(known) // _TITLES)][:_TITLES]),
        }
        nearest = [exact.nearest(row, classes, TOP) for row in self.vectors.values()]
        beside = await asyncio.to_thread(self._beside, other, exact, step, nearest)
        return {
            **found,
            "recall_at_10": await self._recalled(service, exact, step, nearest),
            "forbidden": len(forbidden),
            "wardowl": beside,
        }

    async def _recalled(
        self, service: Service, exact: Exhaustive, step: int, nearest: Sequence[Sequence[UUID]]
    ) -> dict[str, float]:
        """Of the whole request (both branches, fused, reranked) and of the dense branch alone."""
        requests, wanted, dense = [], [], []
        for text, row in self.vectors.items():
            requests.append(_units(await service.ask(step, text, raw=True)))
            subject = service.subject(step)
            async with service.truth.reading(subject, self.snapshot) as reader:
                best = await search(text, reader, exact, self.model, k=TOP)
                (near,) = await service.index.search([DenseSearch(row, TOP)], reader.scope)
            wanted.append([hit.unit.id for hit in best.hits])
            dense.append([one.unit_id for one in sorted(near, key=lambda one: -one.score)][:TOP])
        return {"request": recall(requests, wanted), "index": recall(dense, nearest)}

    def _beside(
        self, other: Peer | None, exact: Exhaustive, step: int, nearest: Sequence[Sequence[UUID]]
    ) -> dict[str, Any]:
        """The other library on the same questions; ``left_out`` says why it has no figures."""
        if other is None:
            return {"left_out": "no .venv-bench: `make bench`"}
        try:
            rows = list(self.vectors.values())
            hits, _ = other.searched(PEER, step, rows)
            times = [ms for _ in range(self.rounds) for ms in other.searched(PEER, step, rows)[1]]
        except PeerFailed as failed:
            return {"left_out": str(failed)}
        found = [[UUID(ident) for ident, _ in one] for one in hits]
        classes = self.snapshot.grant((LADDER[step],)).plain
        return {
            "version": other.version,
            **milliseconds(times),
            "recall_at_10": recall(found, nearest),
            "forbidden": len(exact.forbidden({one for row in found for one in row}, classes)),
        }


def _wanted() -> set[float]:
    """Raises: ValueError for a share that no reader has."""
    given = os.environ.get("RETRIEVAL_SHARES")
    wanted = {float(one) for one in given.split(",")} if given else set(SHARES)
    if unknown := wanted - set(SHARES):
        raise ValueError(f"RETRIEVAL_SHARES: {sorted(unknown)} is none of {SHARES}")
    return wanted


async def _swept(service: Service) -> float:
    """The product's own comparison of index and truth, in seconds: nothing may be left to mend.
    Then the sums of threads are made."""
    began = time.perf_counter()
    swept = await service.worker.sweep()
    seconds = time.perf_counter() - began
    if swept.orphans or swept.mended:
        raise RuntimeError(f"the index is not what its worker would have written: {swept}")
    await service.worker.drain()
    return seconds


async def _series(
    service: Service, step: int, texts: Sequence[str], rounds: int, *, raw: bool
) -> tuple[Series, set[UUID]]:
    """Every question once a round, and every unit that was handed out."""
    series, seen = Series(), set[UUID]()
    for text in texts:  # plans and caches, as on a service that has run for a while
        await service.ask(step, text, raw=raw)
    before = cpu_seconds()
    for _ in range(rounds):
        for text in texts:
            began = time.perf_counter()
            answer = await service.ask(step, text, raw=raw)
            series.add((time.perf_counter() - began) * 1e3, answer, service.spent)
            seen.update(_units(answer))
    series.cpu(before, cpu_seconds())
    return series, seen


def _units(answer: Answer) -> list[UUID]:
    return [one.id for one in answer.governed if one.sort == "unit"]
