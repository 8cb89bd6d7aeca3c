"""How much is tried: examples of a law, a part of a long list; in ``make test-deep`` more."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import settings

DEEPER: Final = 10
_DEEP: Final = settings().max_examples > 100
"""Read when tests are collected, after ``tests.conftest`` has chosen the profile."""


def spaced(step: int) -> int:
    """Of a long list each ``step``-th is asked in the deep profile, else a third of those."""
    return step if _DEEP else 3 * step


def examples(number: int, **more: Any) -> settings:
    """Settings of a law with this many examples, ten times as many in the deep profile.

    A bare number in ``settings(max_examples=...)`` would stay the same in both.
    """
    return settings(max_examples=number * DEEPER if _DEEP else number, **more)
