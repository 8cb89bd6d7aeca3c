"""One side of a comparison: what a policy says about a caller, point by point.

A side is usually a policy. It may also be what somebody wrote down of one (a decision record);
such a side does not know everything, and what it does not know is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from policies.decision import Decision
from policies.snapshot import Snapshot

AGENT: Final = "agent"
ANONYMOUS: Final = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """All that the decisions about one caller depend on.

    ``issuer`` is empty for a caller without a credential. ``claims`` are (name, aliases) pairs.
    ``task_scope`` is the one in force; ``audience`` and ``purpose`` are wishes; ``upstream`` is
    the service that acts for the caller. Every text is empty where it does not apply.
    """

    issuer: str
    claims: frozenset[tuple[str, frozenset[str]]]
    route: str
    method: str
    task_scope: str = ""
    audience: str = ""
    purpose: str = ""
    upstream: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """One side's answer: empty ``value`` for a denial.

    ``agent`` tells a placement that hung on task and route as well.
    """

    value: str
    rules: tuple[str, ...] = ()
    agent: bool = False


NOTHING: Final = Said("")


class Side(Protocol):
    """Every answer may be None: this side does not know."""

    def placed(self, asked: Asked) -> Said | None:
        """The caller's own profile."""
        ...

    def routed(self, asked: Asked, profile: str) -> Said | None:
        """The route, if a caller of this profile may use it."""
        ...

    def narrowed(self, word: str) -> Said | None:
        """The profile that a caller narrows itself to by this word."""
        ...

    def acting(self, upstream: str) -> Said | None:
        """The profile that a service which acts for callers is held to."""
        ...

    def purposed(self, word: str) -> Said | None:
        """The purpose, if it may be named."""
        ...


@dataclass(frozen=True, slots=True)
class PolicySide:
    """A policy, which knows everything."""

    policy: Snapshot

    def placed(self, asked: Asked) -> Said:
        """An agent without a profile is nobody."""
        if not asked.issuer:
            return self._anonymous(asked)
        decision = self.policy.place(asked.issuer, dict(asked.claims))
        if decision.value != AGENT:
            return _said(decision)
        route = self.policy.route(asked.route)
        if route is None or not route.tool or not asked.task_scope:
            return Said("", agent=True)
        roles = dict(asked.claims).get("roles", frozenset())
        agent = self.policy.place_agent(roles, asked.task_scope, route.tool)
        rules = (*decision.rules, *agent.rules) if agent.allowed else agent.rules
        return Said(agent.value, rules, agent=True)

    def _anonymous(self, asked: Asked) -> Said:
        route = self.policy.route(asked.route)
        if route is None or not route.anonymous:
            return NOTHING
        decision = self.policy.decide_route(ANONYMOUS, route.id, asked.method)
        return Said(route.anonymous if decision.allowed else "", decision.rules)

    def routed(self, asked: Asked, profile: str) -> Said:
        """Nothing for a route that is not there or lacks the method."""
        route = self.policy.route(asked.route)
        if route is None or asked.method not in route.methods:
            return NOTHING
        return _said(self.policy.decide_route(profile, route.id, asked.method))

    def narrowed(self, word: str) -> Said:
        return Said(self.policy.narrow(word) or "")

    def acting(self, upstream: str) -> Said:
        found = self.policy.upstreams.get(upstream)
        return Said(found.profile if found is not None and found.may_retrieve else "")

    def purposed(self, word: str) -> Said:
        return Said(word if word in self.policy.vocabulary.purposes else "")


def _said(decision: Decision) -> Said:
    return Said(decision.value, decision.rules)


def claims_key(claims: Mapping[str, Iterable[str]]) -> frozenset[tuple[str, frozenset[str]]]:
    """Claims in the form in which ``Asked`` holds them."""
    return frozenset((name, frozenset(values)) for name, values in claims.items())
