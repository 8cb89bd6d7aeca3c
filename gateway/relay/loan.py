"""A kept connection that is lent for one GET without waiting, and how its answer is waited for.

The ordinary way asks and waits in one call. Whoever answers beside a task (`fastpath`) cannot wait:
it borrows a connection that is idle now, asks, and is called back. The books are the same: a place
in the pool, the load of the backend and its breaker. What does not end at once is waited for in
the ordinary way from where it is, with the ordinary second try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gateway.relay.exchange import Exchange
from gateway.relay.upstream import UpstreamRequest, UpstreamResponse

if TYPE_CHECKING:  # both lend
    from gateway.relay.balance import Backend
    from gateway.relay.connection import Connection


@runtime_checkable
class Lender(Protocol):
    """A transport that lends."""

    def lend(self) -> Loan | None:
        """A connection that is idle and fresh now; None: ask in the ordinary way."""
        ...

    async def resume(self, loan: Loan, request: UpstreamRequest) -> UpstreamResponse:
        """The answer to what was asked over a loan, which is used up; ``request`` is what was
        asked, for a second try. Raises: as `UpstreamTransport.request`."""
        ...


class Loan:
    """One connection, from `lend` until `end`, `cut` or `resume`: exactly one of them, once.

    ``resumed`` says that whoever resumed it sees to its end.
    """

    __slots__ = ("_give_back", "backend", "connection", "exchange", "lender", "resumed")

    def __init__(
        self, lender: Lender, connection: Connection, give_back: Callable[[], None]
    ) -> None:
        self.lender = lender
        self.backend: Backend | None = None
        self.exchange: Exchange | None = None
        self.connection = connection
        self.resumed = False
        self._give_back = give_back

    def ask(self, head: bytes, told: Callable[[], None]) -> Exchange:
        """Send a GET; see `Connection.ask`."""
        exchange = self.exchange = self.connection.ask(head, told)
        return exchange

    def end(self) -> None:
        """The answer is here, whole."""
        backend = self.backend
        if backend is not None:
            backend.breaker.answered()
            backend.under_way -= 1
        self._give_back()

    def cut(self) -> None:
        """Nobody waits any more."""
        if self.exchange is not None:
            self.exchange.told = None
            self.connection.abandon(self.exchange)
        else:
            self.connection.abort()
        if self.backend is not None:
            self.backend.breaker.left()
            self.backend.under_way -= 1
        self._give_back()

    async def answered(self) -> Exchange:
        """The answer, once its header block is complete. Raises: UpstreamError."""
        if self.exchange is None:
            raise RuntimeError("nothing was asked")
        self.exchange.told = None
        try:
            return await self.exchange.head()
        except BaseException:
            self.connection.abandon(self.exchange)
            raise

    async def resume(self, request: UpstreamRequest) -> UpstreamResponse:
        """See `Lender.resume`."""
        self.resumed = True
        return await self.lender.resume(self, request)
