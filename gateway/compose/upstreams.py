"""Upstreams from settings: where they are, and over what they are reached."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from gateway.compose.failure import CannotStart, first_line
from gateway.relay.address import Address
from gateway.relay.balance import Balance
from gateway.relay.dial import context_of
from gateway.relay.fleet import Client, Fleet
from gateway.relay.health import HealthCheck
from gateway.relay.hop import Target
from gateway.relay.upstream import UpstreamTimes
from gateway.settings.model import UpstreamSettings


def targets(upstreams: Mapping[str, UpstreamSettings], known: Collection[str]) -> dict[str, Target]:
    """Where each upstream of the policy is reached, by the policy's name for it.

    A variable of the environment cannot hold a hyphen: `customer_portal` is `customer-portal`
    where the policy has that one. Raises: CannotStart when the policy has neither, or when
    an upstream's authorities or its client cannot be used.
    """
    by_variable = {name.replace("-", "_"): name for name in known}
    found: dict[str, Target] = {}
    for name, upstream in upstreams.items():
        ours = name if name in known else by_variable.get(name)
        if ours is None:
            reason = f"the policy has no upstream `{name}`, so no route would use its address"
            raise CannotStart("unknown_upstream", reason, f"known are {', '.join(sorted(known))}")
        fleet = fleet_of(upstream)
        found[ours] = Target(fleet.addresses[0].authority, fleet.transport, fleet.socket)
    return found


def fleet_of(upstream: UpstreamSettings) -> Fleet:
    """The processes of one upstream. Raises: CannotStart."""
    if upstream.client == "aiohttp" and importlib.util.find_spec("aiohttp") is None:
        raise CannotStart(
            "client_missing",
            "an upstream asks for the client `aiohttp`, which is not installed",
            "install `audience-gateway[aiohttp]`, or leave `client` out",
        )
    addresses = [_address(one, upstream) for one in upstream.addresses]
    try:
        context_of(addresses[0])  # now, not at a first request
    except OSError as error:
        reason = f"the authorities in `{upstream.ca_file}` cannot be used ({first_line(error)})"
        remedy = "name a PEM file of certificates as `ca_file` of the upstream"
        raise CannotStart("ca_unusable", reason, remedy) from error
    return Fleet(
        addresses=addresses,
        times=UpstreamTimes(
            connect_s=upstream.connect_ms / 1_000,
            first_byte_s=upstream.first_byte_ms / 1_000,
            idle_s=upstream.idle_ms / 1_000,
            write_s=upstream.write_ms / 1_000,
            total_s=upstream.total_ms / 1_000,
        ),
        connections_max=upstream.connections_max,
        sockets_max=upstream.sockets_max,
        balance=Balance(upstream.balance),
        client=Client(upstream.client),
        failures_max=upstream.breaker_failures,
        open_s=upstream.breaker_open_ms / 1_000,
        check=_check(upstream, addresses[0].authority),
    )


def _address(origin: str, upstream: UpstreamSettings) -> Address:
    parts = urlsplit(origin)
    tls = parts.scheme == "https"
    return Address(
        host=parts.hostname or "",
        port=parts.port or (443 if tls else 80),
        tls=tls,
        ca_file=str(upstream.ca_file or ""),
    )


def _check(upstream: UpstreamSettings, host: bytes) -> HealthCheck | None:
    health = upstream.health
    if health is None:
        return None
    return HealthCheck(
        path=health.path,
        host=host,
        interval_s=health.interval_ms / 1_000,
        timeout_s=health.timeout_ms / 1_000,
        failures=health.failures,
        passes=health.passes,
    )
