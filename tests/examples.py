"""How many examples a law is tried with: its own number, and in ``make test-deep`` more of them."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import settings

DEEPER: Final = 10
_DEEP: Final = settings().max_examples > 100
"""Read when tests are collected, after ``tests.conftest`` has chosen the profile."""


def examples(number: int, **more: Any) -> settings:
    """Settings of a law with this many examples, ten times as many in the deep profile.

    A bare number in ``settings(max_examples=...)`` would stay the same in both.
    """
    return settings(max_examples=number * DEEPER if _DEEP else number, **more)
