"""Embedders by what the settings say, and the name that is stored beside every vector."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from retrieval.embed.hashing import HashingEmbedder
from retrieval.embed.libraries import Encode, LibraryEmbedder, fastembed, sentence_transformers
from retrieval.embed.minilm import EnglishEmbedder
from retrieval.embed.ports import Embedder
from retrieval.embed.remote import RemoteEmbedder
from retrieval.embed.usem3 import MultilingualEmbedder

DEFAULT: Final = MultilingualEmbedder.name
REMOTE: Final = "openai"
LIBRARIES: Final[Mapping[str, Callable[[str, Path | None], Encode]]] = {
    "fastembed": fastembed,
    "sentence-transformers": sentence_transformers,
}
WITH_MODEL: Final = frozenset({REMOTE, *LIBRARIES})
"""Embedders that are nothing without the name of a model."""
_BUNDLED: Final = "`usem3`, `minilm`, `hashing-<8 to 4096>`"
_NAME_MAX: Final = 56


@dataclass(frozen=True, slots=True)
class Choice:
    """Which embedder is wanted. ``name`` is the sort; the rest is for those of ``WITH_MODEL``:
    ``url``, ``dims``, ``key`` and ``timeout_s`` for ``openai``, ``folder`` for the libraries."""

    name: str = DEFAULT
    model: str = ""
    url: str = ""
    dims: int = 0
    key: str = field(default="", repr=False)
    timeout_s: float = 10.0
    folder: Path | None = None
    languages: tuple[str, ...] = ()


def stored_name(name: str, model: str = "") -> str:
    """The name beside the vectors: the sort, and for a model of somebody else which one.

    At most 56 characters of a-z, 0-9, ``_`` and ``-``; two models never share one.
    """
    if not model:
        return name
    told = f"{name}-{re.sub(r'[^a-z0-9]+', '-', model.lower())}"
    if told == f"{name}-{model}" and len(told) <= _NAME_MAX:
        return told
    short = sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{told[: _NAME_MAX - 9].rstrip('-')}-{short}"


def chosen(choice: Choice) -> Embedder:
    """The embedder of that choice.

    Raises ValueError for one that cannot be had; the message names the remedy.
    """
    if choice.name not in WITH_MODEL:
        return embedder(choice.name)
    name = stored_name(choice.name, choice.model)
    if choice.name == REMOTE:
        return RemoteEmbedder(
            name=name,
            url=choice.url,
            model=choice.model,
            dims=choice.dims,
            key=choice.key,
            timeout_s=choice.timeout_s,
            languages=choice.languages,
        )
    encode = LIBRARIES[choice.name](choice.model, choice.folder)
    return LibraryEmbedder(name, encode, choice.languages)


@cache
def embedder(name: str = DEFAULT) -> Embedder:
    """The one bundled embedder of that name in this process.

    Raises ValueError for a name that nothing answers to; the message names those that do.
    """
    kind, _, dims = name.partition("-")
    if name == MultilingualEmbedder.name:
        return MultilingualEmbedder()
    if name == EnglishEmbedder.name:
        return EnglishEmbedder()
    if kind == "hashing" and dims.isdecimal() and 8 <= int(dims) <= 4096:
        return HashingEmbedder(int(dims))
    others = ", ".join(f"`{one}`" for one in sorted(WITH_MODEL))
    raise ValueError(f"unknown embedder `{name}`; known are {_BUNDLED}, {others}")
