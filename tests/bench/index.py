"""The vector engine alone: what a search costs by how much of how large a corpus may be read.

The engine in this process, as the sidecar drives it (exact, payload indexes before points), so
that a million points can be loaded in minutes. Vectors lie around real ones where those are
beside the repository (shared/data/vectors), else they point anywhere; exact search costs the same.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import UUID

import numpy as np
import qdrant_edge as edge
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from retrieval.embedded.sidecar.collections import OUT_OF_REACH

SIZES: Final = (10_000, 100_000, 1_000_000)
SHARES: Final = (0.001, 0.01, 0.1, 0.5, 1.0)
DIMS: Final = 512
QUERIES: Final = 30
LIMIT: Final = 66
"""What a search asks for: 50 candidates and the spare for ties."""
CLASSES_A_LEVEL: Final = 50
_BATCH: Final = 1_000
_TERMS: Final = 20_000
_VECTORS: Final = (
    Path(__file__).resolve().parents[3] / "shared" / "data" / "vectors" / "use-multilingual-v3.npy"
)

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Figure:
    """Milliseconds of one branch at one size and share; ``cpu`` is this process's own."""

    p50_ms: float
    p99_ms: float
    cpu_ms: float


def run(out: Console, rounds: int) -> dict[str, Any]:
    """Loads each size once and asks ``rounds`` times ``QUERIES`` questions a share and branch."""
    rng = np.random.default_rng(1)
    real = _real(rng)
    found: dict[str, dict[str, dict[str, Figure]]] = {}
    for size in SIZES:
        folder = Path(tempfile.mkdtemp(prefix="bench-index-"))
        try:
            shard = _made(folder)
            _load(shard, size, real, rng)
            found[str(size)] = {
                str(share): {
                    branch: _asked(shard, level, branch, real, rng, rounds * QUERIES)
                    for branch in ("dense", "lexical")
                }
                for level, share in enumerate(SHARES)
            }
            shard.close()
        finally:
            shutil.rmtree(folder)
        out.print(f"{size:,} points measured")
    _show(out, found)
    return {
        size: {
            share: {branch: _values(one) for branch, one in branches.items()}
            for share, branches in shares.items()
        }
        for size, shares in found.items()
    }


def _values(figure: Figure) -> dict[str, float]:
    """A figure as JSON values."""
    return {
        "p50_ms": round(figure.p50_ms, 3),
        "p99_ms": round(figure.p99_ms, 3),
        "cpu_ms": round(figure.cpu_ms, 3),
    }


def _real(rng: np.random.Generator) -> Rows:
    if _VECTORS.exists():
        rows: Rows = np.load(_VECTORS, mmap_mode="r")[:4_000].astype(np.float32)
        return rows
    return rng.standard_normal((4_000, DIMS)).astype(np.float32)


def _drawn(real: Rows, count: int, rng: np.random.Generator) -> list[list[float]]:
    rows = real[rng.integers(0, len(real), count)] + rng.normal(0, 0.02, (count, DIMS))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32).tolist()  # type: ignore[no-any-return]


def _made(folder: Path) -> edge.EdgeShard:
    shard = edge.EdgeShard.create(
        str(folder / "shard"),
        edge.EdgeConfig(
            vectors={"dense": edge.EdgeVectorParams(size=DIMS, distance=edge.Distance.Dot)},
            sparse_vectors={"lexical": edge.EdgeSparseVectorParams()},
            optimizers=edge.EdgeOptimizersConfig(indexing_threshold=OUT_OF_REACH),
        ),
    )
    for name, kind in (
        ("class_id", edge.PayloadSchemaType.Integer),
        ("tenant", edge.PayloadSchemaType.Keyword),
        ("jurisdiction", edge.PayloadSchemaType.Keyword),
    ):
        shard.update(edge.UpdateOperation.create_field_index(name, kind))
    return shard


def _load(shard: edge.EdgeShard, size: int, real: Rows, rng: np.random.Generator) -> None:
    for start in range(0, size, _BATCH):
        levels = np.searchsorted(np.array(SHARES), rng.random(_BATCH))
        classes = levels * CLASSES_A_LEVEL + rng.integers(0, CLASSES_A_LEVEL, _BATCH)
        shard.update(
            edge.UpdateOperation.upsert_points(
                [
                    edge.Point(
                        str(UUID(int=start + number + 1)),
                        {"dense": row, "lexical": _words(rng, 40)},
                        {"class_id": int(classes[number]), "tenant": "*", "jurisdiction": "*"},
                    )
                    for number, row in enumerate(_drawn(real, _BATCH, rng))
                ],
                None,
            )
        )


def _words(rng: np.random.Generator, count: int) -> edge.SparseVector:
    terms = sorted({int(one) % _TERMS for one in rng.zipf(1.2, count)})
    return edge.SparseVector(terms, [float(x) for x in rng.uniform(0.2, 2.2, len(terms))])


def _asked(
    shard: edge.EdgeShard,
    level: int,
    branch: str,
    real: Rows,
    rng: np.random.Generator,
    questions: int,
) -> Figure:
    permitted = _filter(range((level + 1) * CLASSES_A_LEVEL))
    times, spent = [], []
    for row in _drawn(real, questions, rng):
        query = row if branch == "dense" else _words(rng, 8)
        request = edge.QueryRequest(
            limit=LIMIT,
            query=edge.Query.Nearest(query, using=branch),
            filter=permitted,
            params=edge.SearchParams(exact=True),
            with_payload=False,
        )
        clock, processor = time.perf_counter(), time.process_time()
        shard.query(request)
        times.append((time.perf_counter() - clock) * 1_000)
        spent.append((time.process_time() - processor) * 1_000)
    times.sort()
    return Figure(median(times), times[int(len(times) * 0.99)], median(spent))


def _filter(classes: Sequence[int]) -> edge.Filter:
    shared = [
        edge.FieldCondition(key=name, match=edge.MatchAny(["*"]))
        for name in ("tenant", "jurisdiction")
    ]
    own = edge.FieldCondition(key="class_id", match=edge.MatchAny(list(classes)))
    return edge.Filter(must=[own, *shared])


def _show(out: Console, found: dict[str, dict[str, dict[str, Figure]]]) -> None:
    table = Table("points", "readable", "branch", "p50 ms", "p99 ms", "cpu ms", title="index")
    for size, shares in found.items():
        for share, branches in shares.items():
            for branch, one in branches.items():
                table.add_row(
                    f"{int(size):,}", f"{float(share):.1%}", branch,
                    f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", f"{one.cpu_ms:.2f}",
                )  # fmt: skip
    out.print(table)
