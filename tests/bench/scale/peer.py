"""wardowl 2.1 beside ours: the same units, vectors, readers and engine, in a process of its own.

The nearest public library for permission-aware retrieval. Its process is given the vectors of
questions, so it pays for no embedding. The sidecar is one exact engine for both; it refuses a
sparse vector with the IDF modifier, so wardowl's keyword mode is asked in an engine of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retrieval.embed.quantise import engine_form
from tests.bench.decide_peers import PYTHON, PeerFailed
from tests.bench.scale.corpus import LADDER, Unit
from tests.services import VectorService

Hits = list[list[tuple[str, float]]]
"""For each question what was found, best first: ids and scores."""


class Peer:
    """The library over one engine. Raises PeerFailed when it cannot answer."""

    def __init__(self, worker: subprocess.Popen[str], engine: VectorService, dims: int) -> None:
        self._worker = worker
        told = self._ask(url=engine.url, key=engine.api_key, dims=dims)
        self.version = f"wardowl {told['version']}, qdrant-client {told['client']}"

    def searched(
        self, collection: str, step: int, vectors: Sequence[bytes]
    ) -> tuple[Hits, list[float]]:
        """What it finds for the reader of that step, and the milliseconds of each search."""
        rows = [engine_form(one) for one in vectors]
        answer = self._ask(collection=collection, group=LADDER[step], vectors=rows)
        return [_pairs(one) for one in answer["hits"]], answer["ms"]

    def local(
        self, units: Sequence[Unit], step: int, questions: Sequence[tuple[str, bytes]]
    ) -> Mapping[str, Hits]:
        """What it finds among these units alone, by mode: `vector`, `keyword`, `fused`."""
        documents = [
            {
                "id": str(one.id),
                "text": f"{one.title}\n{one.body}",
                "groups": LADDER[one.step :],
                "vector": engine_form(one.vector),
            }
            for one in units
        ]
        queries = [{"text": text, "vector": engine_form(row)} for text, row in questions]
        answer = self._ask(documents=documents, group=LADDER[step], queries=queries)
        return {mode: [_pairs(one) for one in hits] for mode, hits in answer.items()}

    def _ask(self, **message: object) -> Mapping[str, Any]:
        sent, received = self._worker.stdin, self._worker.stdout
        if sent is None or received is None:
            raise PeerFailed("the worker has no pipes")
        sent.write(json.dumps(message) + "\n")
        sent.flush()
        line = received.readline()
        if not line:
            raise PeerFailed("the worker ended")
        answer: Mapping[str, Any] = json.loads(line)
        if "failed" in answer:
            raise PeerFailed(answer["failed"])
        return answer


@contextmanager
def peer(engine: VectorService, dims: int) -> Iterator[Peer | None]:
    """The library for as long as it is asked; None where its environment was never made."""
    if not PYTHON.exists():
        yield None
        return
    script = Path(__file__).with_name("peer_worker.py")
    with subprocess.Popen(
        [PYTHON, "-I", "-W", "ignore::UserWarning", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        yield Peer(worker, engine, dims)  # leaving closes its input, at which it ends


def _pairs(found: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    return [(ident, score) for ident, score in found]
