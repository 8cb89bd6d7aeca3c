"""Embedders of two libraries that the operator may install: fastembed and sentence-transformers.

Both are extras and imported when first used. Without ``folder`` a library fetches the model by
its name when the process starts; with it, nothing is fetched. Names, licences and languages of
models are the operator's to choose.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import ArrayLike

from retrieval.embed.language import UNKNOWN, language
from retrieval.embed.ports import EmbedderMissing, Vector, unit_length

Encode = Callable[[Sequence[str]], Iterable[ArrayLike]]
"""One row of numbers a text, in order."""


class LibraryEmbedder:
    """A library's model as an embedder; safe to call from several threads, one at a time.

    One text a call: in a batch the last digits of a vector may depend on its neighbours.
    ``languages`` are what the model reads (ISO 639-1); empty means all.
    """

    def __init__(self, name: str, encode: Encode, languages: Collection[str] = ()) -> None:
        self.name: Final = name
        self._encode: Final = encode
        self._languages: Final = frozenset(languages)
        self._running: Final = threading.Lock()
        self.dims: Final = len(self._one("dimensions"))

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._one(text) for text in texts]

    def reads(self, text: str) -> bool:
        return not self._languages or language(text) in (UNKNOWN, *self._languages)

    def _one(self, text: str) -> Vector:
        with self._running:
            (row,) = self._encode([text])
        return unit_length(row)


def fastembed(model: str, folder: Path | None) -> Encode:
    """A model of fastembed's list, on one core. Raises EmbedderMissing, and ValueError for a
    model that cannot be loaded."""
    try:
        from fastembed import TextEmbedding
    except ImportError as fault:
        raise EmbedderMissing("fastembed", str(fault)) from fault
    options: dict[str, Any] = {} if folder is None else {"specific_model_path": str(folder)}
    try:
        made = TextEmbedding(model, threads=1, **options)
    except Exception as fault:
        raise ValueError(f"fastembed cannot load `{model}` ({type(fault).__name__})") from fault
    return lambda texts: made.embed(list(texts), batch_size=1)


def sentence_transformers(model: str, folder: Path | None) -> Encode:
    """A sentence-transformers model on the processor. Raises EmbedderMissing, and ValueError for
    a model that cannot be loaded."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as fault:
        raise EmbedderMissing("sentence-transformers", str(fault)) from fault
    try:
        made = SentenceTransformer(
            model if folder is None else str(folder),
            device="cpu",
            local_files_only=folder is not None,
            trust_remote_code=False,
        )
    except Exception as fault:
        reason = f"sentence-transformers cannot load `{model}` ({type(fault).__name__})"
        raise ValueError(reason) from fault
    return lambda texts: made.encode(list(texts), batch_size=1, show_progress_bar=False)
