"""What a process does once when everything is open and requests may come."""

from __future__ import annotations

import gc


def settle() -> None:
    """Takes all that start-up made out of the collector's sight; call it once a process.

    Policy tables and models stay for the life of the process. A full collection would walk all
    of them (170,000 objects, 120 to 220 ms measured) while every request waits.
    """
    gc.collect()
    gc.freeze()
