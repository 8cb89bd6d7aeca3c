"""Vectors by content hash, so that a text is embedded once.

Two formats are read, both keyed by the SHA-256 of the UTF-8 text:

* ``NAME.npz``: ``keys`` (n x 32 bytes) and ``rows`` (n x dims, float16). The one that is written.
* ``NAME.keys`` and ``NAME.npy``: line n is the key of row n, in hex. Memory-mapped.

Every vector, cached or fresh, goes through float16 (about 1e-4 of a score): a text has the
same vector on the first run and on the second.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.embed.ports import Embedder, Vector

Half = NDArray[np.float16]


def content_key(text: str) -> bytes:
    """The key of a text: SHA-256 of its UTF-8 bytes."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


class CachedEmbedder:
    """An embedder that looks into files first. Same protocol, same name, thread-safe.

    ``sources`` are read once, at the start: ``.npz`` files, or the common name of a pair.
    ``own`` is the ``.npz`` that ``save`` writes, read as well. An absent file is empty; a
    malformed one raises ``ValueError``: a wrong vector is worse than a slow start.

    Without ``own`` nothing is remembered: questions would fill the memory, and a quick answer
    would tell one caller what another had asked.
    """

    def __init__(
        self, inner: Embedder, *, sources: Iterable[Path] = (), own: Path | None = None
    ) -> None:
        self._inner: Final = inner
        self._own: Final = own
        self._lock = threading.Lock()
        self._rows: dict[bytes, Half] = {}
        self._new: dict[bytes, Half] = {}
        for source in sources:
            self._rows.update(_read(source, inner.dims))
        if own is not None:
            self._rows.update(_read(own, inner.dims))

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def dims(self) -> int:
        return self._inner.dims

    def reads(self, text: str) -> bool:
        return self._inner.reads(text)

    def __contains__(self, text: str) -> bool:
        return content_key(text) in self._rows

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        keys = [content_key(text) for text in texts]
        with self._lock:
            missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in self._rows}
        rows = self._inner.embed(list(missing.values())) if missing else []
        fresh = {k: row.astype(np.float16) for k, row in zip(missing, rows, strict=True)}
        with self._lock:
            if self._own is not None:
                self._rows.update(fresh)
                self._new.update(fresh)
            return [_unit(fresh[key] if key in fresh else self._rows[key]) for key in keys]

    def save(self) -> int:
        """Writes what was embedded since the last save; returns how many rows that was."""
        if self._own is None:
            return 0
        with self._lock:
            if not self._new:
                return 0
            kept = _read(self._own, self.dims) | self._new
            _write(self._own, kept)
            count = len(self._new)
            self._new.clear()
            return count


def _unit(row: Half) -> Vector:
    wide = row.astype(np.float32)
    length = float(np.linalg.norm(wide))
    return wide / np.float32(length) if length > 0 else wide


def _read(source: Path, dims: int) -> dict[bytes, Half]:
    if source.suffix == ".npz":
        if not source.exists():
            return {}
        with np.load(source, allow_pickle=False) as stored:
            keys, rows = [bytes(key) for key in stored["keys"]], stored["rows"]
    else:
        keys_file = source.with_name(source.name + ".keys")
        if not keys_file.exists():
            return {}
        keys = [bytes.fromhex(line) for line in keys_file.read_text("ascii").split()]
        rows = np.load(source.with_name(source.name + ".npy"), mmap_mode="r", allow_pickle=False)
    if rows.shape != (len(keys), dims):
        raise ValueError(
            f"vector cache `{source.name}` holds {rows.shape} for {len(keys)} keys, "
            f"expected {dims} columns; delete it to have it made anew"
        )
    return {key: rows[i].astype(np.float16, copy=False) for i, key in enumerate(keys)}


def _write(target: Path, rows: dict[bytes, Half]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.{os.getpid()}.new")
    with fresh.open("wb") as out:
        np.savez_compressed(
            out,
            keys=np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 32),
            rows=np.stack(list(rows.values())),
        )
    os.replace(fresh, target)
