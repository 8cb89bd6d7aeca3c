"""Embedders by the name that stands in the settings and beside every stored vector."""

from __future__ import annotations

from functools import cache

from retrieval.embed.hashing import HashingEmbedder
from retrieval.embed.ports import Embedder
from retrieval.embed.usem3 import MultilingualEmbedder

DEFAULT = MultilingualEmbedder.name


@cache
def embedder(name: str = DEFAULT) -> Embedder:
    """The one embedder of that name in this process (``usem3``, ``hashing-<dims>``).

    Raises ``ValueError`` for a name that nothing answers to; the message names those that do.
    """
    kind, _, dims = name.partition("-")
    if name == MultilingualEmbedder.name:
        return MultilingualEmbedder()
    if kind == "hashing" and dims.isdecimal() and 8 <= int(dims) <= 4096:
        return HashingEmbedder(int(dims))
    raise ValueError(f"unknown embedder `{name}`; known are `usem3` and `hashing-<8 to 4096>`")
