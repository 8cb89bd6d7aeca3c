"""Where a search of an index ends: at its limit, with all that tie there.

An engine's scores are rounded, and which of several equal ones it leaves out is its own choice,
which points that the caller may not see can steer. So more is fetched than is asked for, until what
lies behind the cut proves that no tie is missing. The caller recomputes the scores and cuts there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from retrieval.errors import IndexUnavailable, Store
from retrieval.stores.points import Candidate

FETCH_MAX: Final = 10_000
_TOLERANCE: Final = 1e-4
"""Relative. Far above the engine's rounding (2e-6), far below a difference that matters."""
_SPARE: Final = 16
"""Fetched beyond the cut, so that most cuts close in one call."""


def first_fetch(limit: int, excluded: frozenset[UUID]) -> int:
    """How many to fetch for a cut at ``limit``."""
    return limit + len(excluded) + _SPARE


def next_fetch(fetched: int) -> int:
    """How many to fetch where that many did not close the cut."""
    return min(fetched * 4, FETCH_MAX)


def closed(
    proposed: Sequence[Candidate], limit: int, fetched: int, excluded: frozenset[UUID]
) -> list[Candidate] | None:
    """The candidates down to the cut; ``None`` when the ties there may not all be in.

    ``fetched`` is how many could have been proposed at most.

    Raises: IndexUnavailable when more tie than may be fetched.
    """
    found = [one for one in proposed if one.unit_id not in excluded]
    found.sort(key=lambda one: -one.score)
    if len(found) >= limit:
        cut = found[limit - 1].score
        edge = cut - _TOLERANCE * max(1.0, abs(cut))
        if len(proposed) < fetched or found[-1].score < edge:
            return [one for one in found if one.score >= edge]
    elif len(proposed) < fetched:
        return found
    if fetched >= FETCH_MAX:
        raise IndexUnavailable(
            Store.QDRANT, f"more than {FETCH_MAX} units tie at the cut of {limit}"
        )
    return None
