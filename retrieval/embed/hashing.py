"""A deterministic embedder without a model: signed feature hashing of terms.

It knows no meaning: two texts are near when they share words. It is there for tests of
reachability and congruence, and for an operator who wants vectors without a model's cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np

from retrieval.embed.ports import Vector
from retrieval.lexical import analyse


class HashingEmbedder:
    """Terms hashed into ``dims`` signed buckets, damped by square root, unit length."""

    def __init__(self, dims: int = 128) -> None:
        self.dims: Final = dims
        self.name: Final = f"hashing-{dims}"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._one(text) for text in texts]

    def reads(self, text: str) -> bool:  # noqa: ARG002 - words are words in any language
        return True

    def _one(self, text: str) -> Vector:
        row = np.zeros(self.dims, dtype=np.float64)
        for term, count in sorted(analyse(text).items()):
            digest = blake2b(term.encode("utf-8", "surrogatepass"), digest_size=5).digest()
            sign = 1.0 if digest[4] & 1 else -1.0
            row[int.from_bytes(digest[:4], "big") % self.dims] += sign * count**0.5
        length = float(np.sqrt(np.square(row).sum()))
        return (row / length if length > 0 else row).astype(np.float32)
