"""The sample world, for tests of what comes after a pack."""

from __future__ import annotations

from tests.retrieval.service.conftest import own_sample, sample

__all__ = ["own_sample", "sample"]
