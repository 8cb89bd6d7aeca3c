"""A request that was begun beside the application and is answered by it after all."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.relay.loan import Loan
from gateway.stations import Granted
from gateway.telemetry.trace import TraceContext


@dataclass(slots=True, kw_only=True)
class Begun:
    """What was found and what is under way. ``loan`` is resumed once, or cut by `let_go`; None
    where no upstream was asked yet.

    The ids may have been told to an upstream, so the request keeps them.
    """

    request_id: str
    trace: TraceContext
    began_ns: int
    started_ns: int
    granted: Granted
    loan: Loan | None

    def loan_for(self, granted: Granted) -> Loan | None:
        """What is under way, if the walk through the stations came to the same end; None: ask.

        Another policy may be in force by now, and a credential over.
        """
        ours, theirs = self.granted.placed, granted.placed
        before, now = ours.identified.matched, theirs.identified.matched
        same = (
            before.snapshot is now.snapshot
            and before.route is now.route
            and ours.subject == theirs.subject
            and ours.identified.principal == theirs.identified.principal
        )
        if not same:
            self.let_go()
        return self.loan

    def let_go(self) -> None:
        """Cut what nobody came to wait for."""
        loan, self.loan = self.loan, None
        if loan is not None and not loan.resumed:
            loan.cut()
