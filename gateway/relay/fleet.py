"""All processes of one upstream, and the transports to them: one per audience.

What is known of a backend (its breaker, its health, its load) is shared by every audience;
connections never are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.relay.address import Address
from gateway.relay.balance import Backend, Balance, Balanced, Turns, judge
from gateway.relay.breaker import Breaker
from gateway.relay.health import HealthCheck, watch
from gateway.relay.pool import Pool
from gateway.relay.upstream import (
    UpstreamBusy,
    UpstreamTimes,
    UpstreamTransport,
    UpstreamUnavailable,
)
from gateway.relay.websocket import Opening, SocketLimits

if TYPE_CHECKING:
    from gateway.relay.socket import UpstreamSocket


class Client(StrEnum):
    """Which transport is used; ``aiohttp`` is an extra that must be installed."""

    POOL = "pool"
    AIOHTTP = "aiohttp"


@dataclass(slots=True, kw_only=True)
class Fleet:
    """``transport()`` makes what one audience uses. Health is checked while one is open.

    ``connections_max`` bounds exchanges at once per audience and backend, ``sockets_max`` open
    WebSockets of all audiences.
    """

    addresses: Sequence[Address]
    times: UpstreamTimes = field(default_factory=UpstreamTimes)
    connections_max: int = 64
    sockets_max: int = 1_000
    balance: Balance = Balance.ROUND_ROBIN
    client: Client = Client.POOL
    failures_max: int = 5
    open_s: float = 10.0
    check: HealthCheck | None = None
    clock: Callable[[], float] = time.monotonic
    backends: tuple[Backend, ...] = field(init=False)
    _leased: set[_Leased] = field(default_factory=set, init=False)
    _sockets: int = field(default=0, init=False)
    _turns: Turns = field(init=False)
    _watching: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._turns = Turns(self.balance)
        self.backends = tuple(
            Backend(
                address,
                Breaker(clock=self.clock, failures_max=self.failures_max, open_s=self.open_s),
            )
            for address in self.addresses
        )

    def transport(self) -> UpstreamTransport:
        """A transport with connections of its own; call it in the loop that uses it."""
        if self.check is not None and self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(
                watch(self.backends, self.check, self._one)
            )
        members = [(backend, self._one(backend)) for backend in self.backends]
        leased = _Leased(members, self.balance, self._left)
        self._leased.add(leased)
        return leased

    async def socket(self, opening: Opening, limits: SocketLimits) -> UpstreamSocket:
        """An open WebSocket to the next backend that takes one; a second one is tried when
        nothing was sent to the first.

        Raises: SocketDeclined; UpstreamError.
        """
        first = self._turns.pick(self.backends)
        if first is None:
            raise UpstreamUnavailable("no backend is well")
        try:
            return await self._open(self.backends[first], opening, limits)
        except UpstreamUnavailable as error:
            other = self._turns.pick(self.backends, self.backends[first])
            if not error.unsent or other is None:
                raise
        return await self._open(self.backends[other], opening, limits)

    async def _open(
        self, backend: Backend, opening: Opening, limits: SocketLimits
    ) -> UpstreamSocket:
        if self._sockets >= self.sockets_max:
            raise UpstreamBusy("every socket is in use")
        from gateway.relay.socket import open_socket  # the library loads only where it is used

        lease = _Lease(self, backend)
        backend.breaker.begin()
        try:
            socket = await open_socket(
                backend.address, opening, times=self.times, limits=limits, on_gone=lease.end
            )
        except BaseException as error:
            lease.end()
            judge(backend.breaker, error)
            raise
        backend.breaker.answered()
        return socket

    @property
    def sockets(self) -> int:
        """Open WebSockets, of all audiences."""
        return self._sockets

    def connections(self, backend: Backend) -> tuple[int, int]:
        """Connections of all audiences to it: in use, idle. Only the client `pool` can tell."""
        busy = idle = 0
        for leased in self._leased:
            for member, transport in leased.members:
                if member is backend and isinstance(transport, Pool):
                    used, kept = transport.occupancy
                    busy, idle = busy + used, idle + kept
        return busy, idle

    async def _left(self, leased: _Leased) -> None:
        """One transport less; the last one ends the checks."""
        self._leased.discard(leased)
        if not self._leased and self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None

    def _one(self, backend: Backend) -> UpstreamTransport:
        if self.client is Client.POOL:
            return Pool(address=backend.address, times=self.times, limit=self.connections_max)
        from gateway.relay.aiohttp_pool import AiohttpPool  # an extra: only when asked for

        return AiohttpPool(address=backend.address, times=self.times, limit=self.connections_max)


class _Lease:
    """One socket that counts as under way until its connection has ended."""

    def __init__(self, fleet: Fleet, backend: Backend) -> None:
        self._fleet: Fleet | None = fleet
        self._backend = backend
        fleet._sockets += 1
        backend.under_way += 1

    def end(self) -> None:
        if self._fleet is not None:
            self._fleet._sockets -= 1
            self._backend.under_way -= 1
            self._fleet = None


class _Leased(Balanced):
    """A transport that tells its fleet when it is closed."""

    def __init__(
        self,
        members: Sequence[tuple[Backend, UpstreamTransport]],
        balance: Balance,
        left: Callable[[_Leased], Awaitable[None]],
    ) -> None:
        super().__init__(members, balance)
        self.members = tuple(members)
        self._left = left

    async def aclose(self) -> None:
        await super().aclose()
        await self._left(self)
