"""What is known of every process of every upstream, among the counts of this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gateway.compose.upstreams import Reached
from gateway.relay.balance import Backend
from gateway.relay.breaker import State
from gateway.relay.fleet import Fleet
from gateway.telemetry.counters import Counters


def publish_backends(reached: Callable[[], Mapping[str, Reached]], counters: Counters) -> None:
    """Tell breakers, health and occupancy. ``reached`` gives the upstreams of the moment."""

    def each() -> Iterator[tuple[str, str, Fleet, Backend]]:
        for name, one in reached().items():
            for backend in one.fleet.backends:
                yield name, backend.address.authority.decode("ascii"), one.fleet, backend

    counters.levels(
        "gateway_backend_breaker",
        "Circuit breaker of a process of an upstream: 1 for the state that it is in.",
        ("upstream", "backend", "state"),
        lambda: [
            ((name, at, state), float(backend.breaker.state is state))
            for name, at, _, backend in each()
            for state in State
        ],
    )
    counters.levels(
        "gateway_backend_well",
        "What active checks say of it; 1 also where nobody checks.",
        ("upstream", "backend"),
        lambda: [((name, at), float(backend.well)) for name, at, _, backend in each()],
    )
    counters.levels(
        "gateway_backend_under_way",
        "Requests and WebSockets under way to it.",
        ("upstream", "backend"),
        lambda: [((name, at), float(backend.under_way)) for name, at, _, backend in each()],
    )
    counters.levels(
        "gateway_backend_connections",
        "Connections of all pools to it (client `pool`): in use, or kept for the next request.",
        ("upstream", "backend", "state"),
        lambda: [
            ((name, at, state), float(count))
            for name, at, fleet, backend in each()
            for state, count in zip(("busy", "idle"), fleet.connections(backend), strict=True)
        ],
    )
    counters.levels(
        "gateway_upstream_sockets",
        "Open WebSockets to an upstream.",
        ("upstream",),
        lambda: [((name,), float(one.fleet.sockets)) for name, one in reached().items()],
    )
