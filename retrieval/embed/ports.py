"""What an embedder is to the rest of retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
        """One vector per text, in order. Blocking and CPU-bound: call it off the event loop."""
        ...

    def reads(self, text: str) -> bool:
        """Whether the model was trained on the language that the text seems to be in."""
        ...


def unit_text(title: str, body: str) -> str:
    """The text of a unit that is embedded, and whose SHA-256 keys the vector cache."""
    return f"{title}\n{body}"
