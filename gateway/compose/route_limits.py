"""Limits of routes from settings, checked against the routes that the policy has."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.compose.failure import CannotStart
from gateway.relay.admission import Admission, Allowance, Per, RateStore, RouteLimits
from gateway.settings.model import RouteLimitSettings


def admission_of(
    settings: Mapping[str, RouteLimitSettings],
    known: Collection[str],
    rates: RateStore | None = None,
) -> Admission:
    """What the data plane asks before a request goes on. Raises: CannotStart."""
    return Admission(route_limits(settings, known), rates=rates)


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
