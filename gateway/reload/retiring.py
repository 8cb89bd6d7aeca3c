"""The first and the last moments of a snapshot, in steps that hold nobody up."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Final

from policies.errors import UnknownProfile
from policies.snapshot import Snapshot

_PAUSE_S: Final = 0.25
_PATIENCE: Final = 480
"""Pauses that an old snapshot is waited for: two minutes, four times as long as a request lives."""
_OURS: Final = 2
"""References that ``retire`` itself holds: its own and the one of the call that counts them."""


async def warm(snapshot: Snapshot, before: Snapshot | None) -> None:
    """Make the grants that were in use under the policy before. Cost: up to 0.7 ms a step.

    The youngest objects are collected in each step, when they are few: a collection that came
    by itself would find the class ids of them all and walk those at once.
    """
    for profiles in before.granted if before is not None else ():
        try:
            snapshot.grant(profiles)
        except UnknownProfile:  # a profile that is no more
            continue
        gc.collect(0)
        await asyncio.sleep(0)


async def retire(snapshot: Snapshot) -> None:
    """Let an old snapshot go, once no request is under it any more, piece by piece.

    Freed at once, two hundred grants and the vocabulary would take some ten milliseconds.
    """
    for _ in range(_PATIENCE):
        if sys.getrefcount(snapshot) <= _OURS:
            break
        await asyncio.sleep(_PAUSE_S)
    pieces = snapshot.pieces()
    del snapshot
    while pieces:
        pieces.pop()
        await asyncio.sleep(0)
