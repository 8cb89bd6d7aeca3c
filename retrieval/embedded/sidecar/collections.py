"""The collections on disk: one folder each, with the engine's shard and what it was made from.

``collection.json`` is written last on creation and removed first on deletion, so that a
folder without it is a leftover of a kill and is cleared on the next start.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import qdrant_edge as edge

from retrieval.embedded.errors import EmbeddedError
from retrieval.embedded.sidecar.wire import Refused, fields, needed, whole

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
OUT_OF_REACH: Final = 10**9
"""Indexing threshold in KB: no graph is ever built, every search is exact.

The engine holds the interpreter lock for the whole of a graph's build, and a graph shared
with hidden points lets them steer what others find.
"""
DISTANCES: Final = {one.lower(): getattr(edge.Distance, one) for one in ("Cosine", "Dot")}
WITHOUT_EFFECT: Final = (
    "hnsw_config",
    "optimizers_config",
    "shard_number",
    "replication_factor",
    "write_consistency_factor",
    "on_disk_payload",
)
"""What only a real server can heed; accepted so that one code path creates both."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection: the engine's shard, and the vectors it was declared with."""

    shard: edge.EdgeShard
    declared: dict[str, Any]


class Collections:
    """All collections of one folder, loaded. Not shared between processes."""

    def __init__(self, folder: Path) -> None:
        """Load what is there. Raises ``EmbeddedError`` ``index_unreadable``."""
        self._folder = folder
        self._open: dict[str, Collection] = {}
        for place in sorted(folder.iterdir()):
            if not (place / "collection.json").exists():
                shutil.rmtree(place)
                continue
            self._open[place.name] = _load(place)

    def __getitem__(self, name: str) -> Collection:
        try:
            return self._open[name]
        except KeyError:
            raise Refused(404, f"Not found: Collection `{name}` doesn't exist!") from None

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def __iter__(self) -> Any:
        return iter(sorted(self._open))

    def create(self, name: str, body: object) -> None:
        """Make an empty collection. 409 when there is one of that name."""
        if not NAME.fullmatch(name):
            raise Refused(400, "a collection's name is 1 to 64 letters, digits, `_` and `-`")
        if name in self._open:
            raise Refused(409, f"Wrong input: Collection `{name}` already exists!")
        given = fields(body, "vectors", "sparse_vectors", *WITHOUT_EFFECT, where="a collection")
        declared = {
            "vectors": needed(given, "vectors", where="a collection"),
            "sparse_vectors": given.get("sparse_vectors", {}),
        }
        config = _config(declared)
        place = self._folder / name
        place.mkdir()
        shard = edge.EdgeShard.create(str(place / "shard"), config)
        shard.flush()
        _write(place / "collection.json", declared)
        self._open[name] = Collection(shard=shard, declared=declared)

    def drop(self, name: str) -> bool:
        """Remove a collection and its files. False when there was none."""
        if name not in self._open:
            return False
        place = self._folder / name
        (place / "collection.json").unlink()
        self._open.pop(name).shard.close()
        shutil.rmtree(place)
        return True

    def close(self) -> None:
        """Write everything down and let go of the files."""
        for collection in self._open.values():
            collection.shard.flush()
            collection.shard.close()
        self._open.clear()


def _load(place: Path) -> Collection:
    try:
        declared = json.loads((place / "collection.json").read_bytes())
        return Collection(shard=edge.EdgeShard.load(str(place / "shard")), declared=declared)
    except Exception as error:
        raise EmbeddedError(
            "index_unreadable",
            f"the vector index `{place.name}` cannot be read ({str(error)[:200]})",
            f"move `{place}` away: the index is built anew from Postgres",
        ) from error


def _write(path: Path, declared: dict[str, Any]) -> None:
    half = path.with_suffix(".new")
    with half.open("w") as file:
        json.dump(declared, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)


def _config(declared: dict[str, Any]) -> edge.EdgeConfig:
    vectors, sparse = declared["vectors"], declared["sparse_vectors"]
    if not isinstance(vectors, dict) or not vectors or not isinstance(sparse, dict):
        raise Refused(400, "`vectors` and `sparse_vectors` must be given by name")
    return edge.EdgeConfig(
        vectors={name: _dense(params) for name, params in vectors.items()},
        sparse_vectors={name: _sparse(params) for name, params in sparse.items()} or None,
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=OUT_OF_REACH),
    )


def _dense(params: object) -> edge.EdgeVectorParams:
    given = fields(params, "size", "distance", "hnsw_config", "on_disk", where="a vector")
    distance = DISTANCES.get(str(given.get("distance", "")).lower())
    if distance is None:
        raise Refused(400, "a vector's distance must be Cosine or Dot")
    size = whole(given.get("size"), least=1, most=65_536, where="a vector's size")
    return edge.EdgeVectorParams(size=size, distance=distance)


def _sparse(params: object) -> edge.EdgeSparseVectorParams:
    given = fields(params, "modifier", "index", where="a sparse vector")
    if given.get("modifier", "none") != "none":
        # Document frequencies of hidden points would show in everyone's scores.
        raise Refused(400, "a sparse vector's modifier must be none")
    return edge.EdgeSparseVectorParams()
