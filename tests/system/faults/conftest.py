"""Stores of these tests' own, because they are killed; without crash safety where that is not
what is tested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retrieval.embedded import Embedded, start
from tests.services import state_folder


@pytest.fixture
def state() -> Iterator[Path]:
    with state_folder() as folder:
        yield folder


@pytest.fixture
def durable(state: Path) -> Iterator[Embedded]:
    """A pair that may be killed; it keeps what it has confirmed."""
    with start(state) as pair:
        yield pair
