"""All processes of one upstream, and the transports to them: one per audience.

What is known of a backend (its breaker, its health, its load) is shared by every audience;
connections never are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.relay.address import Address
from gateway.relay.balance import Backend, Balance, Balanced
from gateway.relay.breaker import Breaker
from gateway.relay.health import HealthCheck, watch
from gateway.relay.pool import Pool
from gateway.relay.upstream import UpstreamTimes, UpstreamTransport


class Client(StrEnum):
    """Which transport is used; ``aiohttp`` is an extra that must be installed."""

    POOL = "pool"
    AIOHTTP = "aiohttp"


@dataclass(slots=True, kw_only=True)
class Fleet:
    """``transport()`` makes what one audience uses. Health is checked while one is open."""

    addresses: Sequence[Address]
    times: UpstreamTimes = field(default_factory=UpstreamTimes)
    connections_max: int = 64
    balance: Balance = Balance.ROUND_ROBIN
    client: Client = Client.POOL
    failures_max: int = 5
    open_s: float = 10.0
    check: HealthCheck | None = None
    clock: Callable[[], float] = time.monotonic
    backends: tuple[Backend, ...] = field(init=False)
    _users: int = field(default=0, init=False)
    _watching: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.backends = tuple(
            Backend(
                address,
                Breaker(clock=self.clock, failures_max=self.failures_max, open_s=self.open_s),
            )
            for address in self.addresses
        )

    def transport(self) -> UpstreamTransport:
        """A transport with connections of its own; call it in the loop that uses it."""
        self._users += 1
        if self.check is not None and self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(
                watch(self.backends, self.check, self._one)
            )
        members = [(backend, self._one(backend)) for backend in self.backends]
        return _Leased(members, self.balance, fleet=self)

    async def left(self) -> None:
        """One transport less; the last one ends the checks."""
        self._users -= 1
        if self._users == 0 and self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None

    def _one(self, backend: Backend) -> UpstreamTransport:
        if self.client is Client.POOL:
            return Pool(address=backend.address, times=self.times, limit=self.connections_max)
        from gateway.relay.aiohttp_pool import AiohttpPool  # an extra: only when asked for

        return AiohttpPool(address=backend.address, times=self.times, limit=self.connections_max)


@dataclass(slots=True)
class _Leased(Balanced):
    """A transport that tells its fleet when it is closed."""

    fleet: Fleet = field(kw_only=True)

    async def aclose(self) -> None:
        # dataclass slots replace the class, so there is no zero-argument super() here
        await Balanced.aclose(self)
        await self.fleet.left()
