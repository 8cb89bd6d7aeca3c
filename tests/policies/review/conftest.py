"""The default policy, read once for every comparison with an edited copy."""

from __future__ import annotations

import pytest

from policies.review.reading import Reading, read_unproven


@pytest.fixture(scope="session")
def shipped() -> Reading:
    return read_unproven()
