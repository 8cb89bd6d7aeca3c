"""Non-interference, side by side: is an answer the same without what its reader may not see?

Two corpora, one with and one without the units above a step of the ladder; the readers at or below
that step ask both. Ours must answer with the same bytes; of wardowl ids and scores are compared, in
the sidecar and (what the sidecar refuses: an IDF over all points) in an engine of its own process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import uvloop

from policies.snapshot import Snapshot
from retrieval.embed.ports import Embedder
from tests.bench.decide_peers import PeerFailed
from tests.bench.scale.corpus import Batch, Corpus, Unit
from tests.bench.scale.load import PEER
from tests.bench.scale.peer import Hits, Peer, peer
from tests.bench.scale.service import Service, opened
from tests.bench.scale.stock import Stock, stocked
from tests.retrieval.stage import wire

STEP: Final = 2
_TITLES: Final = 24
_LOCAL: Final = 2_000
"""Units in the engine of the other library's process: it searches by numpy, one by one."""


def compared(
    corpus: Corpus, snapshot: Snapshot, model: Embedder, vectors: Mapping[str, bytes]
) -> dict[str, Any]:
    """For each way of asking how many answers were compared and how many differed."""
    titles: list[str] = []

    def also(batch: Batch) -> None:
        titles.extend(one.title for one in batch.threads if one.step <= STEP)

    without = replace(corpus, only=STEP)
    with ExitStack() as stack:
        full = stack.enter_context(stocked(corpus, snapshot, model, also))
        part = stack.enter_context(stocked(without, snapshot, model))
        asked = [*vectors, *titles[:_TITLES]]
        found = {"gateway": uvloop.run(_ours(full, part, snapshot, model, asked))}
        sides = [stack.enter_context(peer(one.vectors, model.dims)) for one in (full, part)]
        return found | _theirs(sides, corpus, without, vectors)


async def _ours(
    full: Stock, part: Stock, snapshot: Snapshot, model: Embedder, texts: Sequence[str]
) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        sides = [
            await stack.enter_async_context(opened(one.database, one.vectors, snapshot, model))
            for one in (full, part)
        ]
        for side in sides:
            await side.worker.drain()
        different = asked = 0
        for step in range(STEP + 1):
            for text in texts:
                for raw in (False, True):
                    left, right = [await _bytes(side, step, text, raw) for side in sides]
                    asked += 1
                    different += left != right
    return {"asked": asked, "different": different, "compared": "bytes of the answer"}


async def _bytes(side: Service, step: int, text: str, raw: bool) -> str:
    return wire(await side.ask(step, text, raw=raw))


def _theirs(
    sides: Sequence[Peer | None], corpus: Corpus, without: Corpus, vectors: Mapping[str, bytes]
) -> dict[str, dict[str, Any]]:
    full, part = sides
    if full is None or part is None:
        return {"wardowl": {"left_out": "no .venv-bench: `make bench`"}}
    rows = list(vectors.values())
    try:
        steps = range(STEP + 1)
        found = {
            "wardowl, vector, sidecar": _differences(
                [one for step in steps for one in full.searched(PEER, step, rows)[0]],
                [one for step in steps for one in part.searched(PEER, step, rows)[0]],
            )
        }
        seen = _first(corpus, _LOCAL)
        rest = [one for one in seen if one.step <= STEP]
        questions = list(vectors.items())
        left, right = (full.local(units, STEP, questions) for units in (seen, rest))
    except PeerFailed as failed:
        return {"wardowl": {"left_out": str(failed)}}
    for mode in left:
        found[f"wardowl, {mode}, local engine"] = _differences(left[mode], right[mode])
    return found


def _first(corpus: Corpus, many: int) -> list[Unit]:
    return list(islice((unit for batch in corpus.batches() for unit in batch.units), many))


def _differences(left: Hits, right: Hits) -> dict[str, Any]:
    """Answers that differ in an id, its place or its score, and by how much scores did."""
    pairs = list(zip(left, right, strict=True))
    moved = [
        abs(score - dict(two)[ident])
        for one, two in pairs
        for ident, score in one
        if ident in dict(two)
    ]
    return {
        "asked": len(pairs),
        "different": sum(one != two for one, two in pairs),
        "other_ids": sum([i for i, _ in one] != [i for i, _ in two] for one, two in pairs),
        "score_moved_most": max(moved, default=0.0),
        "compared": "ids, order and scores",
    }
