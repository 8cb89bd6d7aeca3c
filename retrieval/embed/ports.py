"""What an embedder is to the rest of retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float32]
"""One row of unit length (or all zero, for a text in which nothing could be read)."""


class Embedder(Protocol):
    """Turns texts into unit vectors; the same text always into the same one.

    ``name`` is stored beside every vector: vectors of different names never meet.
    """

    @property
    def name(self) -> str: ...

    @property
    def dims(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order. Blocking: call it off the event loop.

        Raises IndexUnavailable when a model elsewhere does not answer, and ValueError,
        RuntimeError or MemoryError for one in this process that cannot.
        """
        ...

    def reads(self, text: str) -> bool:
        """Whether the model was trained on the language that the text seems to be in."""
        ...


class EmbedderMissing(ValueError):
    """The embedder comes with an extra that is not installed."""

    def __init__(self, extra: str, reason: str) -> None:
        super().__init__(
            f"embedder `{extra}` cannot be loaded ({reason}); "
            f'install it in the clone: `.venv/bin/pip install -e ".[{extra}]"`'
        )


def unit_text(title: str, body: str) -> str:
    """The text of a unit that is embedded, and whose SHA-256 keys the vector cache."""
    return f"{title}\n{body}"


def unit_length(row: ArrayLike) -> Vector:
    """The vector of length 1 in the same direction; zero stays zero.

    Raises ValueError for a component that is not a finite number.
    """
    wide: Vector = np.asarray(row, dtype=np.float32)
    length = float(np.linalg.norm(wide.astype(np.float64)))
    if not np.isfinite(length):
        raise ValueError("a vector holds a component that is not a finite number")
    scaled: Vector = wide / np.float32(length) if length > 0 else wide
    return scaled
