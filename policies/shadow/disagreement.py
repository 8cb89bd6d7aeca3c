"""What two policies can disagree about, and how one disagreement is named.

Laws
    * A disagreement names policy words only: points, profiles, routes, rules, class ids. Never
      a caller, a claim's value, an address or a text.
    * All of its fields come from one of the two policies, so there are finitely many.

This module does not know where disagreements are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from policies.decision import UNCLASSED


class Point(StrEnum):
    """A decision that is looked up in both policies."""

    PLACEMENT = "placement"
    ROUTE = "route"
    NARROWING = "narrowing"
    PURPOSE = "purpose"
    UNIT = "unit"


class Way(StrEnum):
    """What the candidate would change: allow what is denied, deny what is allowed, or decide on
    something else that is allowed too."""

    OPENS = "opens"
    CLOSES = "closes"
    MOVES = "moves"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One way in which the candidate decides otherwise; what is counted.

    ``profile`` is whose reach it is: the live side's word, the candidate's where the live side
    has none; several joined by ``&`` are an intersection. ``asked`` is what was decided on: an
    issuer (for an agent with task and route), a route with its method, a word. ``live`` and
    ``candidate`` are what each side said, empty for a denial. Rules of a unit are left empty
    here: they follow from profile, class and consent, and are looked up when somebody asks
    (``attribution``).
    """

    point: Point
    way: Way
    profile: str
    asked: str
    live: str
    candidate: str
    live_rules: tuple[str, ...] = ()
    candidate_rules: tuple[str, ...] = ()
    class_id: int = UNCLASSED
    consent: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # once: what is counted is looked up for every unit of every request
        object.__setattr__(self, "_hash", hash(tuple(getattr(self, name) for name in _KEY)))

    def __hash__(self) -> int:
        return self._hash


_KEY: Final = tuple(one.name for one in fields(Disagreement) if one.compare)


def way_of(live: str, candidate: str) -> Way | None:
    """How two answers differ; an empty one is a denial. None when they agree."""
    if live == candidate:
        return None
    if not live:
        return Way.OPENS
    return Way.MOVES if candidate else Way.CLOSES
