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
class Balanced:
    """An :class:`UpstreamTransport` for one audience over one transport per backend."""

    members: Sequence[tuple[Backend, UpstreamTransport]]
    balance: Balance = Balance.ROUND_ROBIN
    _next: int = field(default=0, init=False)

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
        for _, transport in self.members:
            await transport.aclose()

    def _pick(self, other_than: Backend | None) -> tuple[Backend, UpstreamTransport] | None:
        """The next one that may be asked. Cost: one look at each."""
        count = len(self.members)
        chosen = None
        for step in range(count):
            place = (self._next + step) % count
            member = self.members[place]
            backend = member[0]
            if backend is other_than or not backend.admits():
                continue
            if chosen is None or backend.under_way < self.members[chosen][0].under_way:
                chosen = place
            if self.balance is Balance.ROUND_ROBIN:
                break
        if chosen is None:
            return None
        self._next = (chosen + 1) % count
        return self.members[chosen]


async def _ask(
    backend: Backend, transport: UpstreamTransport, request: UpstreamRequest
) -> UpstreamResponse:
    backend.breaker.begin()
    backend.under_way += 1
    try:
        response = await transport.request(request)
    except BaseException as error:
        backend.under_way -= 1
        match error:
            case UpstreamBusy():
                backend.breaker.left()
            case UpstreamUnavailable() | UpstreamTimeout():
                backend.breaker.failed()
            case UpstreamError():
                backend.breaker.answered()
            case _:
                backend.breaker.left()
        raise
    backend.breaker.answered()
    return _Counted(response, backend)


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
