"""Which settings count at once when they are read again, and which wait for a restart.

Laws
    * A reading is taken over whole, as far as it can be while serving; what cannot be is named.
    * A value that waits for a restart never gets in by a side door: workers that start again are
      given what the others have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.settings.model import LimitSettings, Settings

LATER_LIMITS: Final = frozenset(
    {"keep_alive_ms", "drain_ms", "graceful_ms", "journal_ms", "index_lag_ms", "shared_rates"}
)
"""Limits of parts that are made once; every other one is asked for each request."""
LIVE_LIMITS: Final = frozenset(LimitSettings.model_fields) - LATER_LIMITS
_LIVE_SECTIONS: Final = frozenset({"upstreams", "route_limits", "tokens"})


def live(key: str) -> bool:
    """Whether a setting, by its dotted path, counts without a restart."""
    section, _, name = key.partition(".")
    return (
        section in _LIVE_SECTIONS
        or (section == "limits" and name in LIVE_LIMITS)
        or key == "telemetry.sample_ratio"
    )


def changes(old: Settings, new: Settings) -> tuple[str, ...]:
    """The dotted paths of all settings that differ, sorted. Values are not told.

    What is there only once (an upstream that was added) is one path, whatever it holds.
    """
    return tuple(sorted(_differing(old.model_dump(), new.model_dump())))


def taken_over(old: Settings, new: Settings) -> Settings:
    """``old`` with everything from ``new`` that counts without a restart."""
    limits = {name: getattr(new.limits, name) for name in LIVE_LIMITS}
    return old.model_copy(
        update={
            "upstreams": new.upstreams,
            "route_limits": new.route_limits,
            "tokens": new.tokens,
            "limits": old.limits.model_copy(update=limits),
            "telemetry": old.telemetry.model_copy(
                update={"sample_ratio": new.telemetry.sample_ratio}
            ),
        }
    )


def _differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        if old != new:
            yield path
        return
    for key in old.keys() | new.keys():
        below = f"{path}.{key}" if path else str(key)
        if key in old and key in new:
            yield from _differing(old[key], new[key], below)
        else:
            yield below
