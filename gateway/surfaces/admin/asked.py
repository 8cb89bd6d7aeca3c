"""What the plane gives a door, and what a door gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.errors import Code, Refusal
from gateway.surfaces.admin.wire import Question, Wire
from policies.kinds import AdminAction
from policies.snapshot import Snapshot
from policies.subject import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks, under which policy, in which request."""

    principal: Principal
    snapshot: Snapshot
    request_id: str
    trace_id: str

    @property
    def roles(self) -> frozenset[str]:
        return self.principal.claims.get("roles", frozenset())

    def require_enforced(self, digest: str) -> None:
        """Return when the policy that decided is the one that the database enforces.

        Raises: Refusal ``policy_changed``: a replica that is behind answers no operator.
        """
        if digest != self.snapshot.digest:
            raise Refusal(Code.POLICY_CHANGED, "the database enforces another revision")


@dataclass(frozen=True, slots=True)
class Answered:
    """``told`` is for the journal. ``about`` is the policy that was asked about, if another.

    A refusal (a unit that does not exist) is an answer too: it is journaled, then sent.
    """

    reply: Wire | Refusal
    told: Mapping[str, str | int]
    about: str | None = None


class Door(Protocol):
    """One question that operators may ask. ``actions`` are all that it may need."""

    @property
    def route(self) -> str: ...

    @property
    def model(self) -> type[Question]: ...

    @property
    def actions(self) -> tuple[AdminAction, ...]: ...

    def actions_of(self, request: Any, /) -> tuple[AdminAction, ...]:
        """What this very question needs; the first one names the use."""
        ...

    async def answer(self, asked: Asked, request: Any) -> Answered: ...
