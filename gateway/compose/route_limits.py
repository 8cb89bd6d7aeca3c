"""Limits of routes from settings, checked against the routes that the policy has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gateway.compose.failure import CannotStart
from gateway.relay.admission import Admission, Allowance, Per, RateStore, RouteLimits
from gateway.settings.model import RouteLimitSettings
from policies.bindings import Route

STANDING: Final[Mapping[str, RouteLimitSettings]] = {
    "check": RouteLimitSettings(rate=120, rate_period_ms=60_000, burst=60),
    "feedback": RouteLimitSettings(rate=60, rate_period_ms=60_000, burst=60),
}
"""What a caller may do of an operation that leaves rows behind, unless settings say otherwise."""


def admission_of(
    settings: Mapping[str, RouteLimitSettings],
    routes: Iterable[Route],
    rates: RateStore | None = None,
) -> Admission | None:
    """What the data plane asks before a request goes on; None where no route has a limit.

    Raises: CannotStart.
    """
    known = {route.id: STANDING.get(route.operation) for route in routes}
    standing = {name: limits for name, limits in known.items() if limits is not None}
    limits = route_limits({**standing, **settings}, known)
    return Admission(limits, rates=rates) if limits else None


def route_limits(
    settings: Mapping[str, RouteLimitSettings], known: Collection[str]
) -> dict[str, RouteLimits]:
    """What each route takes, by its id. Raises: CannotStart for a route that the policy has not."""
    unknown = sorted(set(settings) - set(known))
    if unknown:
        reason = f"the policy has no route `{unknown[0]}`, so its limits would limit nothing"
        raise CannotStart("unknown_route", reason, f"known are {', '.join(sorted(known))}")
    return {route: _limits(limits) for route, limits in settings.items()}


def _limits(limits: RouteLimitSettings) -> RouteLimits:
    allowance = None
    if limits.rate is not None:
        allowance = Allowance(
            count=limits.rate,
            period_s=limits.rate_period_ms / 1_000,
            burst=limits.burst or limits.rate,
            per=Per(limits.rate_per),
        )
    return RouteLimits(
        body_bytes=limits.body_bytes_max, at_once=limits.at_once_max, allowance=allowance
    )
