"""How many worlds a law over worlds is tried on: 100, and 2,000 by `make nightly`."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

NIGHTLY: Final = settings().max_examples >= 2_000
WORLDS: Final = 2_000 if NIGHTLY else 100
TIMEOUT_S: Final = 6 * 3_600 if NIGHTLY else 600
"""For all worlds of one law."""
