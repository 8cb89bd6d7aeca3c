"""Several processes behind one upstream: which of them is asked next.

A backend's health and load are one value, shared by all audiences; its connections are not
(one transport per audience and backend). A request is sent twice at most, to another backend
if there is one, and only when no byte of an answer came and it may be repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.relay.address import Address
from gateway.relay.breaker import Breaker
from gateway.relay.upstream import (
    UpstreamBusy,
    UpstreamError,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTimeout,
    UpstreamTransport,
    UpstreamUnavailable,
)


class Balance(StrEnum):
    """``round_robin``: one after the other. ``least_requests``: where fewest are under way."""

    ROUND_ROBIN = "round_robin"
    LEAST_REQUESTS = "least_requests"


@dataclass(slots=True, eq=False)
class Backend:
    """One process of an upstream. ``well`` is what active checks say; nobody asked: well."""

    address: Address
    breaker: Breaker
    well: bool = True
    under_way: int = 0

    def admits(self) -> bool:
        return self.well and self.breaker.admits()


@dataclass(slots=True)
class Turns:
    """Whose turn it is."""

    balance: Balance = Balance.ROUND_ROBIN
    _next: int = field(default=0, init=False)

    def pick(self, backends: Sequence[Backend], other_than: Backend | None = None) -> int | None:
        """The place of the next one that may be asked; None = nobody. Cost: a look at each."""
        count = len(backends)
        chosen = None
        for step in range(count):
            place = (self._next + step) % count
            backend = backends[place]
            if backend is other_than or not backend.admits():
                continue
            if chosen is None or backend.under_way < backends[chosen].under_way:
                chosen = place
            if self.balance is Balance.ROUND_ROBIN:
                break
        if chosen is not None:
            self._next = (chosen + 1) % count
        return chosen


class Balanced:
    """An :class:`UpstreamTransport` for one audience over one transport per backend."""

    def __init__(
        self, members: Sequence[tuple[Backend, UpstreamTransport]], balance: Balance
    ) -> None:
        self._backends = tuple(backend for backend, _ in members)
        self._transports = tuple(transport for _, transport in members)
        self._turns = Turns(balance)
        self._single = (self._backends[0], self._transports[0]) if len(members) == 1 else None

    async def request(self, request: UpstreamRequest) -> UpstreamResponse:
        first = self._pick(None)
        if first is None:
            raise UpstreamUnavailable("no backend is well")
        try:
            return await _ask(*first, request)
        except UpstreamUnavailable as error:
            if not error.again:
                raise
            other = self._pick(first[0])
            if other is None and not error.unsent and first[0].admits():
                other = first
            if other is None:
                raise
        return await _ask(*other, request)

    async def aclose(self) -> None:
        for transport in self._transports:
            await transport.aclose()

    def _pick(self, other_than: Backend | None) -> tuple[Backend, UpstreamTransport] | None:
        if self._single is not None:
            only = self._single[0]
            return self._single if only is not other_than and only.admits() else None
        place = self._turns.pick(self._backends, other_than)
        return None if place is None else (self._backends[place], self._transports[place])


async def _ask(
    backend: Backend, transport: UpstreamTransport, request: UpstreamRequest
) -> UpstreamResponse:
    backend.breaker.begin()
    backend.under_way += 1
    try:
        response = await transport.request(request)
    except BaseException as error:
        backend.under_way -= 1
        judge(backend.breaker, error)
        raise
    backend.breaker.answered()
    return _Counted(response, backend)


def judge(breaker: Breaker, error: BaseException) -> None:
    """What a failed request says about the process that it was sent to."""
    match error:
        case UpstreamBusy():
            breaker.left()
        case UpstreamUnavailable() | UpstreamTimeout():
            breaker.failed()
        case UpstreamError():
            breaker.answered()
        case _:
            breaker.left()


class _Counted:
    """A response that counts as under way until it is closed."""

    __slots__ = ("_backend", "_response", "headers", "status")

    def __init__(self, response: UpstreamResponse, backend: Backend) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._backend: Backend | None = backend

    @property
    def done(self) -> bool:
        return self._response.done

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.__aiter__()

    async def aclose(self) -> None:
        if self._backend is not None:
            self._backend.under_way -= 1
            self._backend = None
        await self._response.aclose()
