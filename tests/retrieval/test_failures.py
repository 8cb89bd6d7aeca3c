"""The list of known failure modes names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_listed_failure_mode_has_its_test() -> None:
    """A renamed test takes its row along."""
    named = re.findall(r"`(test_\w+)`", (TESTS / "retrieval" / "README.md").read_text())
    there = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert named
    assert sorted(set(named) - there) == []
    assert len(named) == len(set(named))
