"""Several processes behind one upstream: which of them is asked next.

A backend's health and load are one value, shared by all audiences; its connections are not
(one transport per audience and backend). A request is sent twice at most, to another backend
if there is one, and only when no byte of an answer came and it may be repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.relay.address import Address
from gateway.relay.breaker import Breaker
from gateway.relay.loan import Lender, Loan
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

    def begin(self) -> None:
        """One more request is under way."""
        self.breaker.begin()
        self.under_way += 1


@dataclass(slots=True)
class Turns:
    """Whose turn it is."""

    balance: Balance = Balance.ROUND_ROBIN
    next: int = field(default=0, init=False)

    def pick(self, backends: Sequence[Backend], other_than: Backend | None = None) -> int | None:
        """The place of the next one that may be asked; None = nobody. Cost: a look at each."""
        count = len(backends)
        chosen = None
        for step in range(count):
            place = (self.next + step) % count
            backend = backends[place]
            if backend is other_than or not backend.admits():
                continue
            if chosen is None or backend.under_way < backends[chosen].under_way:
                chosen = place
            if self.balance is Balance.ROUND_ROBIN:
                break
        if chosen is not None:
            self.next = (chosen + 1) % count
        return chosen


class Balanced:
    """An :class:`UpstreamTransport` for one audience over one transport per backend."""

    def __init__(
        self, members: Sequence[tuple[Backend, UpstreamTransport]], balance: Balance
    ) -> None:
        self._backends = tuple(backend for backend, _ in members)
        self._transports = tuple(transport for _, transport in members)
        self._lenders = {
            backend: transport for backend, transport in members if isinstance(transport, Lender)
        }
        self._turns = Turns(balance)
        self._single = (self._backends[0], self._transports[0]) if len(members) == 1 else None

    async def request(self, request: UpstreamRequest) -> UpstreamResponse:
        first = self._pick(None)
        if first is None:
            raise UpstreamUnavailable("no backend is well")
        first[0].begin()
        return await self._second_try(first[0], first[1].request(request), request)

    def lend(self) -> Loan | None:
        """A kept connection to whoever is next; None too when that one has none idle."""
        turn = self._turns.next
        picked = self._pick(None)
        if picked is None:
            return None
        backend = picked[0]
        lender = self._lenders.get(backend)
        loan = None if lender is None else lender.lend()
        if loan is None:
            self._turns.next = turn  # nobody was asked
            return None
        backend.begin()
        loan.backend, loan.lender = backend, self
        return loan

    async def resume(self, loan: Loan, request: UpstreamRequest) -> UpstreamResponse:
        """The answer to what was asked over a loan; see `relay.loan`."""
        backend = loan.backend
        if backend is None:
            raise RuntimeError("a loan of somebody else")
        answer = self._lenders[backend].resume(loan, request)
        return await self._second_try(backend, answer, request)

    async def _second_try(
        self,
        first: Backend,
        answer: Awaitable[UpstreamResponse],
        request: UpstreamRequest,
    ) -> UpstreamResponse:
        """The answer of ``first``; when it gives none and another may be asked, that one's."""
        try:
            return await _counted(first, answer)
        except UpstreamUnavailable as error:
            if not error.again:
                raise
            other = self._pick(first)
            if other is None and not error.unsent:
                other = self._pick(None)
            if other is None:
                raise
        other[0].begin()
        return await _counted(other[0], other[1].request(request))

    async def aclose(self) -> None:
        for transport in self._transports:
            await transport.aclose()

    def _pick(self, other_than: Backend | None) -> tuple[Backend, UpstreamTransport] | None:
        if self._single is not None:
            only = self._single[0]
            return self._single if only is not other_than and only.admits() else None
        place = self._turns.pick(self._backends, other_than)
        return None if place is None else (self._backends[place], self._transports[place])


async def _counted(backend: Backend, answer: Awaitable[UpstreamResponse]) -> UpstreamResponse:
    """An answer that counts; the backend has begun."""
    try:
        response = await answer
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
