"""A corpus into both stores, in bulk: the way a first import would come, not one unit at a time.

Into Postgres by COPY under all triggers, so that everything derived is the product's own work. Into
the vector engine by its own calls in this process, in the form that the outbox worker writes; the
sidecar then takes the finished folder over. A sweep afterwards must find nothing to mend.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import psycopg
import qdrant_edge as edge

from policies.snapshot import Snapshot
from retrieval.embed.quantise import SCALE
from retrieval.embedded.sidecar.collections import Collection, Collections
from retrieval.embedded.sidecar.operations import create_index
from retrieval.stores.postgres.arrays import array_literal
from retrieval.stores.qdrant import DENSE, LEXICAL, PAYLOAD_INDEXES
from retrieval.threads.keyword import thread_form
from tests.bench.scale.corpus import LADDER, Batch, Corpus, Thread, Unit

OURS: Final = "units"
PEER: Final = "peer"
_POINTS: Final = 1_000
_TOGETHER: Final = 10
"""Batches a statement: what is derived of it counts each word of a class once, however many units
have it."""
_FACETS: Final = (
    "visibility", "readiness", "publication_state", "risk_class", "authority", "kind",
)  # fmt: skip


@dataclass(slots=True)
class Spent:
    """Seconds by what was filled (side by side), and how much it was."""

    units: int = 0
    threads: int = 0
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("postgres", "index"), 0.0)
    )

    def rates(self) -> dict[str, float]:
        """Units a second, by store."""
        return {name: round(self.units / max(s, 1e-9)) for name, s in self.seconds.items()}


@dataclass(frozen=True, slots=True)
class Shelf:
    """Collections in the making, in a folder that no sidecar has open."""

    folder: Path
    collections: Collections
    ours: Collection
    peer: Collection

    def hand_over(self, target: Path) -> None:
        """Closes them and puts them where the (stopped) sidecar looks."""
        self.collections.close()
        for name in (OURS, PEER):
            shutil.move(self.folder / name, target / name)


def shelf(folder: Path, dims: int) -> Shelf:
    """Empty collections: ours, and one as the other library keeps its chunks."""
    folder.mkdir()
    collections = Collections(folder)
    dense = {DENSE: {"size": dims, "distance": "Dot"}}
    collections.create(OURS, {"vectors": dense, "sparse_vectors": {LEXICAL: {}}})
    cosine = {DENSE: {"size": dims, "distance": "Cosine"}}
    collections.create(PEER, {"vectors": cosine, "sparse_vectors": {}})
    for name, kind in PAYLOAD_INDEXES.items():
        create_index(collections[OURS], {"field_name": name, "field_schema": kind.value})
    for name in ("wardowl_id", "metadata.allowed_users", "metadata.allowed_groups"):
        create_index(collections[PEER], {"field_name": name, "field_schema": "keyword"})
    return Shelf(folder, collections, collections[OURS], collections[PEER])


def fill(
    url: str,
    snapshot: Snapshot,
    corpus: Corpus,
    into: Shelf,
    model: str,
    also: Callable[[Batch], None] | None = None,
) -> Spent:
    """All of a corpus into an empty database and both collections; ``also`` gets every batch.

    The outbox is emptied: the collection is what it would have asked for.
    """
    spent = Spent()
    with (
        ThreadPoolExecutor(1) as beside,
        psycopg.connect(url, autocommit=True, options="-c work_mem=256MB") as connection,
    ):
        for batch in _together(corpus.batches()):
            began = time.perf_counter()
            indexing = beside.submit(_upsert, into, batch.units)
            _write(connection, snapshot, batch, model)
            spent.seconds["postgres"] += time.perf_counter() - began
            spent.seconds["index"] += indexing.result()
            if also is not None:
                also(batch)
            spent.units += len(batch.units)
            spent.threads += len(batch.threads)
        began = time.perf_counter()
        connection.execute("truncate brain.outbox")
        connection.execute("vacuum analyze")
        spent.seconds["postgres"] += time.perf_counter() - began
    return spent


def _together(batches: Iterator[Batch]) -> Iterator[Batch]:
    while some := list(islice(batches, _TOGETHER)):
        yield Batch(
            [unit for one in some for unit in one.units],
            [thread for one in some for thread in one.threads],
        )


def _write(
    connection: psycopg.Connection[Any], snapshot: Snapshot, batch: Batch, model: str
) -> None:
    units = batch.units
    with connection.transaction(), connection.cursor() as cursor:
        _copy(cursor, "thread", (_thread(one, snapshot) for one in batch.threads))
        _copy(cursor, "unit", (_unit(one, snapshot) for one in units))
        _copy(cursor, "unit_revision", (_revision(one) for one in units))
        _copy(cursor, "embedding", (
            {"unit_id": one.id, "revision": 1, "model": model, "vector": one.vector}
            for one in units
        ))  # fmt: skip
        _copy(cursor, "thread_term", (row for one in batch.threads for row in _terms(one)))
        _copy(cursor, "thread_membership", (
            {"thread_id": one.id, "unit_id": member, "role": "canonical"}
            for one in batch.threads for member in one.members
        ))  # fmt: skip


def _copy(
    cursor: psycopg.Cursor[tuple[Any, ...]], table: str, rows: Iterable[Mapping[str, object]]
) -> None:
    listed = list(rows)
    if not listed:
        return
    with cursor.copy(f"copy brain.{table} ({', '.join(listed[0])}) from stdin".encode()) as copy:
        for row in listed:
            copy.write_row(tuple(row.values()))


def _label(class_id: int, snapshot: Snapshot) -> dict[str, object]:
    facets = snapshot.vocabulary.facets_of(class_id)
    return {**{name: facets[name] for name in _FACETS}, "tenant": "*", "jurisdiction": "*"}


def _thread(thread: Thread, snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": thread.id,
        "canonical_address": f"thread/{thread.number}",
        "title": thread.title,
        **_label(thread.class_id, snapshot),
    }


def _unit(unit: Unit, snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": unit.id,
        "canonical_address": f"unit/{unit.number}",
        "title": unit.title,
        "current_revision": 1,
        "content_hash": str(unit.number),
        **_label(unit.class_id, snapshot),
    }


def _revision(unit: Unit) -> dict[str, object]:
    return {
        "unit_id": unit.id,
        "revision": 1,
        "title": unit.title,
        "body": unit.body,
        "body_sha256": "",
        "lexical_terms": array_literal(list(unit.terms)),
        "lexical_weights": array_literal(list(unit.weights)),
    }


def _terms(thread: Thread) -> Iterable[dict[str, object]]:
    for term, weight in zip(*thread_form(thread.title, (), ""), strict=True):
        yield {
            "term": term,
            "thread_id": thread.id,
            "weight": weight,
            "class_id": -1,
            "tenant": "*",
            "jurisdiction": "*",
        }


def _upsert(into: Shelf, units: Sequence[Unit]) -> float:
    """Returns the seconds that it took."""
    began = time.perf_counter()
    for start in range(0, len(units), _POINTS):
        part = units[start : start + _POINTS]
        joined = np.frombuffer(b"".join(one.vector for one in part), dtype="<i2")
        rows = (joined.reshape(len(part), -1) / SCALE).astype(np.float32).tolist()
        for collection, form in ((into.ours, _point), (into.peer, _chunk)):
            points = [form(one, row) for one, row in zip(part, rows, strict=True)]
            collection.shard.update(edge.UpdateOperation.upsert_points(points, None))
    return time.perf_counter() - began


def _point(unit: Unit, row: list[float]) -> edge.Point:
    """As ``stores.qdrant`` writes it."""
    lexical = edge.SparseVector(list(unit.terms), list(unit.weights))
    payload = {
        "class_id": unit.class_id,
        "tenant": "*",
        "jurisdiction": "*",
        "unit_id": str(unit.id),
        "revision": 1,
    }
    return edge.Point(unit.id, {DENSE: row, LEXICAL: lexical}, payload)


def _chunk(unit: Unit, row: list[float]) -> edge.Point:
    """As the other library's Qdrant backend writes it; a group is a step of the ladder."""
    payload = {
        "wardowl_id": str(unit.id),
        "page_content": f"{unit.title}\n{unit.body}",
        "metadata": {"allowed_users": [], "allowed_groups": list(LADDER[unit.step :])},
    }
    return edge.Point(unit.id, {DENSE: row}, payload)
