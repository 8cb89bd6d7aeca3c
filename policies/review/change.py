"""One difference between two revisions, and which way it goes.

Law: a change is narrowing or neutral only where that can be shown. Everything else widens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """What a change does to the reach of some principal; ``neutral`` leaves it as it is."""

    WIDENING = "widening"
    NARROWING = "narrowing"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Change:
    """``area`` is what kind of thing changed, ``name`` which one, ``what`` how, for people."""

    direction: Direction
    area: str
    name: str
    what: str


def strongest(directions: Iterable[Direction]) -> Direction:
    """The direction of several changes together: one that widens makes all of it widening."""
    found = set(directions)
    for direction in (Direction.WIDENING, Direction.NARROWING):
        if direction in found:
            return direction
    return Direction.NEUTRAL


def words(values: Collection[str]) -> str:
    """Values joined by ``|``, an empty list written out."""
    return "|".join(values) if values else "(none)"
