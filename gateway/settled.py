"""What keeps the garbage collector off what a process loads once and keeps for its life."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_S: Final = 0.0005
"""How long a thread may compute while the event loop waits for the interpreter; 5 ms by default,
and each wake-up of the loop would wait that long while a scope document is written."""


@contextmanager
def loading() -> Iterator[None]:
    """Modules are to be imported in it: what they make is never looked at by the collector.

    It would walk all of it again and again while it grows, and twice when the process ends: of
    the 2.1 s of processor time that all houses cost, 0.7 s (measured). Cost: what an import
    leaves behind stays, 2,000 small objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle() -> None:
    """Takes all that start-up made out of the collector's sight; call it once a process.

    When everything is open and requests may come: policy tables and models stay for the life of
    the process. A full collection would walk all of them (170,000 objects, 120 to 220 ms
    measured) while every request waits.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
