"""How much, how often and how many at once: the limits of one route.

Rates follow GCRA: a steady rate with a burst on top, one number per caller, exact waiting
times. ``RateStore`` keeps them: in the process here, for all gateways in ``shared_rates``.

What limits is settings, never policy: a limit refuses what policy allows and opens nothing.

Source: issue 4 part 3; attack log row D6.
"""

from __future__ import annotations

import collections
import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from pyrate_limiter import GCRA, Rate

from gateway.errors import Code, Refusal

CALLERS_MAX: Final = 50_000
"""Callers of one route that are remembered; the one who was not heard for longest is forgotten."""


class Per(StrEnum):
    """Who shares one allowance."""

    CALLER = "caller"
    ROUTE = "route"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """``count`` requests in ``period_s``, evenly, and up to ``burst`` at once."""

    count: int
    period_s: float
    burst: int
    per: Per = Per.CALLER


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLimits:
    """Bounds of one route; None is no bound. ``at_once`` counts requests under way."""

    body_bytes: int | None = None
    at_once: int | None = None
    allowance: Allowance | None = None


class RateStore(Protocol):
    """Where allowances are kept."""

    async def take(self, route: str, who: str, allowance: Allowance) -> float:
        """Use one request of an allowance: 0, or the seconds until one is free (none is used)."""
        ...


@dataclass(slots=True)
class LocalRates:
    """Allowances in this process. ``clock`` gives monotonic seconds. Cost: about 3 us a request."""

    clock: Callable[[], float] = time.monotonic
    callers_max: int = CALLERS_MAX
    _rates: dict[Allowance, list[Rate]] = field(default_factory=dict, init=False)
    _states: dict[str, collections.OrderedDict[str, tuple[float, ...]]] = field(
        default_factory=dict, init=False
    )

    async def take(self, route: str, who: str, allowance: Allowance) -> float:
        rates = self._rates.get(allowance)
        if rates is None:
            period_ms = max(1, round(allowance.period_s * 1_000))
            rates = [Rate(allowance.count, period_ms, burst=allowance.burst)]
            self._rates[allowance] = rates
        states = self._states.setdefault(route, collections.OrderedDict())
        state = states.pop(who, None) or _GCRA.initial(rates)
        state, decision = _GCRA.step(rates, state, int(self.clock() * 1_000), 1)
        states[who] = state
        if len(states) > self.callers_max:
            states.popitem(last=False)
        return 0.0 if decision.allowed else (decision.retry_after_ms or 1) / 1_000


_GCRA: Final = GCRA()


class Admission:
    """The limits of every route, asked before a request goes to its upstream."""

    def __init__(
        self, limits: Mapping[str, RouteLimits], *, rates: RateStore | None = None
    ) -> None:
        self._limits = dict(limits)
        self._rates = rates or LocalRates()
        self._under_way: dict[str, int] = collections.defaultdict(int)

    def bounds(self, route: str) -> bool:
        """Whether this route has any limit."""
        return route in self._limits

    async def enter(self, route: str, caller: str, *, declared_bytes: int | None) -> Place:
        """A place on the route, to be left when the answer is written.

        ``caller`` is who an allowance is counted for: a subject, or the site of a visitor
        without one.

        Raises: Refusal ``body_too_large``, ``rate_limited`` or ``overloaded``.
        """
        limits = self._limits.get(route)
        if limits is None:
            return _NO_PLACE
        if limits.body_bytes is not None and (declared_bytes or 0) > limits.body_bytes:
            raise Refusal(Code.BODY_TOO_LARGE, "declared, for this route")
        if limits.at_once is not None and self._under_way[route] >= limits.at_once:
            raise Refusal(
                Code.OVERLOADED, f"route `{route}` is full", headers=((b"retry-after", b"1"),)
            )
        place = Place(self._under_way, route, limits.body_bytes)
        try:
            await self._allow(route, caller, limits.allowance)
        except BaseException:
            place.leave()
            raise
        return place

    async def _allow(self, route: str, caller: str, allowance: Allowance | None) -> None:
        if allowance is None:
            return
        who = caller if allowance.per is Per.CALLER else ""
        wait_s = await self._rates.take(route, who, allowance)
        if wait_s > 0:
            after = (b"retry-after", b"%d" % math.ceil(wait_s))
            raise Refusal(Code.RATE_LIMITED, f"route `{route}`", headers=(after,))


class Place(contextlib.AbstractContextManager["Place"]):
    """One request under way on a limited route, whose body may have ``body_bytes``."""

    __slots__ = ("_counts", "_route", "body_bytes")

    def __init__(self, counts: dict[str, int], route: str, body_bytes: int | None) -> None:
        self._counts = counts
        self._route = route
        self.body_bytes = body_bytes
        counts[route] += 1

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the place back; a second time changes nothing."""
        if self._route:
            self._counts[self._route] -= 1
            self._route = ""


_NO_PLACE: Final = Place({"": 0}, "", None)
