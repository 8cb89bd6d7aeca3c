"""What operators see of the processes behind the gateway, told as they are at that moment.

Provenance: issue 4 part 3.
"""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any, cast

from gateway.compose.backends import publish_backends
from gateway.compose.upstreams import Reached
from gateway.relay.health import HealthCheck
from gateway.telemetry.counters import Counters
from tests.gateway.relay.asking import question, told
from tests.gateway.relay.clock import run
from tests.gateway.relay.test_balance import fleet_of, mute, named


def levels(fleet: Any) -> dict[str, float]:
    """Every sample of the fleet as upstream `u`, its backends called a, b, ... in their order."""
    counters = Counters()
    one = cast(Reached, type("One", (), {"fleet": fleet}))
    publish_backends(lambda: MappingProxyType({"u": one}), counters)
    text = counters.text()
    for letter, backend in zip("ab", fleet.backends, strict=False):
        text = text.replace(backend.address.authority.decode(), letter)
    lines = [one for one in text.splitlines() if one.startswith(("gateway_b", "gateway_u"))]
    pairs = [one.rpartition(" ") for one in lines]
    return {name.removeprefix("gateway_"): float(value) for name, _, value in pairs}


def breaker(found: dict[str, float], backend: str) -> list[str]:
    """The states that are told with a 1."""
    start = f'backend_breaker{{upstream="u",backend="{backend}",state="'
    return [
        name.removeprefix(start).removesuffix('"}')
        for name, value in found.items()
        if name.startswith(start) and value == 1
    ]


def connections(found: dict[str, float], backend: str) -> tuple[float, float]:
    busy, idle = (
        found[f'backend_connections{{upstream="u",backend="{backend}",state="{state}"}}']
        for state in ("busy", "idle")
    )
    return busy, idle


def test_a_connection_is_busy_while_it_is_asked_and_idle_afterwards() -> None:
    """Both transports of the fleet count; so do requests under way."""

    async def scenario() -> None:
        async with fleet_of(named(b"a")) as (fleet, one, _):
            assert connections(levels(fleet), "a") == (0, 0)
            response = await one.request(question())
            other = fleet.transport()
            second = await other.request(question())
            found = levels(fleet)
            assert found['backend_under_way{upstream="u",backend="a"}'] == 2
            for answer in (response, second):
                async for _piece in answer:
                    pass
                await answer.aclose()
            found = levels(fleet)
            assert found['backend_under_way{upstream="u",backend="a"}'] == 0
            assert connections(found, "a") == (0, 2)
            await other.aclose()
            assert connections(levels(fleet), "a") == (0, 1)

    run(scenario())


def test_a_breaker_that_opens_and_a_backend_that_is_ill_are_told() -> None:
    """One state at a time has a 1; the other process is not touched."""
    check = HealthCheck(path="/", host=b"u", interval_s=10, timeout_s=1, failures=1)

    async def scenario() -> None:
        async with fleet_of(mute, named(b"b"), failures_max=1, open_s=5, check=check) as (
            fleet,
            one,
            _,
        ):
            found = levels(fleet)
            assert (breaker(found, "a"), breaker(found, "b")) == (["closed"], ["closed"])
            assert found['backend_well{upstream="u",backend="a"}'] == 1
            await told(one, question())
            await asyncio.sleep(1.5)
            found = levels(fleet)
            assert (breaker(found, "a"), breaker(found, "b")) == (["open"], ["closed"])
            assert found['backend_well{upstream="u",backend="a"}'] == 0
            assert found['backend_well{upstream="u",backend="b"}'] == 1
            await asyncio.sleep(5)
            assert breaker(levels(fleet), "a") == ["half_open"]

    run(scenario())
