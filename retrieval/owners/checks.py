"""What is wrong with one part of a thread, from that part alone. Pure: no store, no clock.

Theory
    A part is the units of one thread, class and compartment. Whoever may see one of its units may
    see all of them, so a verdict on it tells a reader nothing about what is hidden, as long as
    it rests on the part alone. How parts make a thread's verdict is ``threads.health``'s to say:
    a part that is stale or too narrow says so of itself, and a thread is only if all are.

    stale        nothing happened in it for ``stale_after``
    overbroad    more than ``units_max`` units
    too_narrow   fewer than ``units_min`` units
    healthy      none of these

Noise is no property of a part: it is what an audience says (``signals``), and stays with it.

Source: seed sections 4.3 and 4.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from retrieval.threads.health import Status


@dataclass(frozen=True, slots=True)
class Limits:
    """Where health ends."""

    stale_after: timedelta = timedelta(days=365)
    units_min: int = 2
    units_max: int = 400

    def told(self) -> dict[str, int]:
        """As they are kept with a check."""
        return {
            "stale_days": self.stale_after.days,
            "units_min": self.units_min,
            "units_max": self.units_max,
        }


DEFAULT: Final = Limits()


@dataclass(frozen=True, slots=True)
class Finding:
    """``reason`` holds numbers of this part and limits, nothing else."""

    status: Status
    reason: str


def judge(units: int, last_activity: datetime | None, *, now: datetime, limits: Limits) -> Finding:
    """The worst that can be said of a part with so many units, last active then."""
    if last_activity is None or now - last_activity > limits.stale_after:
        when = "never" if last_activity is None else f"{(now - last_activity).days} days ago"
        return Finding(Status.STALE, f"last active {when}, limit {limits.stale_after.days} days")
    if units > limits.units_max:
        return Finding(Status.OVERBROAD, f"{units} units, limit {limits.units_max}")
    if units < limits.units_min:
        return Finding(Status.TOO_NARROW, f"{units} units, limit {limits.units_min}")
    return Finding(Status.HEALTHY, "")
