"""Vectors as real ones lie: a mixture of diagonal Gaussians, fitted on real embeddings.

Fitted by k-means (Lloyd 1982): a mean and a variance per dimension of each cluster, weighed by how
many vectors fell to it. Drawn rows are scaled to length 1 and stored as every vector is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.embed.quantise import SCALE

CLUSTERS: Final = 64
_PASSES: Final = 12
_ROOT: Final = Path(__file__).resolve().parents[3]
_SHARED: Final = _ROOT.parent / "shared" / "data" / "vectors" / "use-multilingual-v3.npy"
_SAMPLE: Final = _ROOT / "deploy" / "demo" / "vectors.npz"

Floats = NDArray[np.float32]
Quantised = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Mixture:
    """``weights`` (c), ``means`` and ``deviations`` (c x dims); ``source``: what was fitted."""

    weights: NDArray[np.float64]
    means: Floats
    deviations: Floats
    source: str

    def draw(self, count: int, rng: np.random.Generator) -> Quantised:
        """Unit vectors in stored form, one a row."""
        chosen = rng.choice(len(self.weights), count, p=self.weights)
        noise = rng.standard_normal((count, self.means.shape[1]), dtype=np.float32)
        rows = self.means[chosen] + noise * self.deviations[chosen]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return np.rint(rows * np.float32(SCALE)).astype(np.int16)


def fitted() -> Mixture:
    """On the vectors beside the repository, else on those of the sample corpus (fewer clusters)."""
    if _SHARED.exists():
        rows = np.load(_SHARED, allow_pickle=False).astype(np.float32)
        return _fit(rows, CLUSTERS, f"{len(rows):,} rows of {_SHARED.name}")
    with np.load(_SAMPLE, allow_pickle=False) as stored:
        rows = stored["rows"].astype(np.float32)
    return _fit(rows, CLUSTERS // 8, f"{len(rows):,} rows of {_SAMPLE.name}")


def _fit(rows: Floats, clusters: int, source: str) -> Mixture:
    rng = np.random.default_rng(1)
    means = rows[rng.choice(len(rows), clusters, replace=False)]
    nearest = np.zeros(len(rows), dtype=np.intp)
    for _ in range(_PASSES):
        # |x - m|^2 without |x|^2, which is the same for every cluster
        nearest = np.argmin((means**2).sum(axis=1) - 2 * rows @ means.T, axis=1)
        means = np.stack([
            rows[nearest == one].mean(axis=0) if (nearest == one).any() else means[one]
            for one in range(clusters)
        ])  # fmt: skip
    counts = np.bincount(nearest, minlength=clusters)
    deviations = np.stack([
        rows[nearest == one].std(axis=0) if counts[one] > 1 else np.zeros(rows.shape[1])
        for one in range(clusters)
    ])  # fmt: skip
    return Mixture(
        counts / counts.sum(), means.astype(np.float32), deviations.astype(np.float32), source
    )
