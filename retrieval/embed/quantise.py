"""Unit vectors as integers, so that a score is exact whatever the order of the additions.

A component x of a unit vector becomes round(x * 32767), little-endian int16. The dot of two
such rows fits 53 bits for any dimension below four million, so our own scores are the same
to the last bit on every machine. The vector engine gets q / 32767 as float32 under the
distance *Dot*: no normalisation of its own, and at most a few 1e-7 away from our score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.embed.ports import Vector

SCALE: Final = 32767
_WIRE: Final = np.dtype("<i2")


def pack(vector: Vector) -> bytes:
    """The stored form of a unit vector: 2 bytes a dimension."""
    if not np.isfinite(vector).all():
        raise ValueError("a vector holds a component that is not a finite number")
    scaled = np.rint(np.asarray(vector, dtype=np.float64) * SCALE)
    return np.clip(scaled, -SCALE, SCALE).astype(_WIRE).tobytes()


def integers(packed: bytes) -> NDArray[np.int64]:
    """The integer components of a stored vector (also what thread partials add up)."""
    return np.frombuffer(packed, dtype=_WIRE).astype(np.int64)


def engine_form(packed: bytes) -> list[float]:
    """The floats that the vector engine is given for a stored vector."""
    return [float(x) for x in (integers(packed) / SCALE).astype(np.float32)]


def dot(left: bytes, right: bytes) -> float:
    """The exact dot product of two stored vectors, about in [-1, 1]."""
    return float(dots(left, [right])[0])


def dots(query: bytes, rows: Sequence[bytes]) -> NDArray[np.float64]:
    """The exact dot products of one stored vector with many of the same dimension.

    Shape: one value per row. Raises ``ValueError`` when a row has another dimension.
    Cost: about 1 us a row at 512 dimensions.
    """
    if not rows:
        return np.zeros(0, dtype=np.float64)
    if any(len(row) != len(query) for row in rows):
        raise ValueError("vectors of different dimensions cannot be compared")
    # float64 holds every partial sum exactly (32767^2 * dims < 2^53), and multiplies fast
    matrix = np.frombuffer(b"".join(rows), dtype=_WIRE).reshape(len(rows), -1)
    exact = matrix.astype(np.float64) @ np.frombuffer(query, dtype=_WIRE).astype(np.float64)
    result: NDArray[np.float64] = exact / float(SCALE * SCALE)
    return result
