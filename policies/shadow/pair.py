"""Two policies side by side: one question, both answers, and where they differ.

Laws
    * Like is compared with like. The route, the narrowing and the units of a caller are looked
      up for the audience and profiles that the *live* policy gave it, in both policies: a caller
      who would be placed elsewhere is one disagreement (placement), not a hundred.
    * What the live policy refuses early is compared as far as it goes and no further.
    * Pure: nothing here counts, waits or raises for what a policy lacks.

Not compared: which tokens are believed and which paths exist. Both are settled before there is
a caller, so they are for ``diff`` to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from policies.decision import Decision
from policies.shadow.disagreement import Disagreement, Point, way_of
from policies.shadow.units import UnitPair, unit_pair
from policies.snapshot import Snapshot

AGENT: Final = "agent"
ANONYMOUS: Final = "anonymous"
_KEPT_MAX: Final = 4_096


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
class Compared:
    """The points that were looked up in both, each with whose reach it was, and the differences."""

    points: tuple[tuple[Point, str], ...]
    found: tuple[Disagreement, ...]


@dataclass(frozen=True, slots=True)
class _Said:
    """One side's answer: empty ``value`` for a denial."""

    value: str
    rules: tuple[str, ...] = ()


NOTHING: Final = _Said("")


@dataclass(frozen=True, slots=True)
class Pair:
    """A live policy and the candidate beside it. What was looked up once is remembered."""

    live: Snapshot
    candidate: Snapshot
    _units: dict[tuple[str, ...], UnitPair] = field(default_factory=dict, repr=False, compare=False)
    _callers: dict[Asked, Compared] = field(default_factory=dict, repr=False, compare=False)

    def units(self, profiles: tuple[str, ...]) -> UnitPair:
        """Both policies for units under these profiles. Cost: one look-up after the first time."""
        known = self._units.get(profiles)
        if known is None:
            known = unit_pair(self.live, self.candidate, profiles)
            if len(self._units) < _KEPT_MAX:
                self._units[profiles] = known
        return known

    def caller(self, asked: Asked) -> Compared:
        """Placement, agent's profile, route, narrowing and purpose of one request.

        Cost: one look-up after the first time, else some ten in each policy.
        """
        known = self._callers.get(asked)
        if known is None:
            known = _compared(self.live, self.candidate, asked)
            if len(self._callers) < _KEPT_MAX:
                self._callers[asked] = known
        return known


def _compared(live: Snapshot, candidate: Snapshot, asked: Asked) -> Compared:
    points: list[tuple[Point, str]] = []
    found: list[Disagreement] = []
    for point, profile, subject, one, other in _looked_up(live, candidate, asked):
        points.append((point, profile))
        way = way_of(one.value, other.value)
        if way is not None:
            found.append(
                Disagreement(
                    point, way, profile, subject, one.value, other.value, one.rules, other.rules
                )
            )
    return Compared(tuple(points), tuple(found))


_Both = tuple[Point, str, str, _Said, _Said]


def _looked_up(live: Snapshot, candidate: Snapshot, asked: Asked) -> Iterator[_Both]:
    """Every decision about this caller: point, whose reach, what on, and both answers."""

    def both(say: Callable[[Snapshot], _Said]) -> tuple[_Said, _Said]:
        return say(live), say(candidate)

    was, now = both(lambda policy: _placed(policy, asked))
    subject = asked.issuer or f"{ANONYMOUS} {asked.route}"
    yield Point.PLACEMENT, was.value or now.value, subject, was, now
    profile = was.value
    if was.value == now.value == AGENT:
        one, other = both(lambda policy: _agent(policy, asked))
        subject = f"{asked.task_scope or 'no task'} on {asked.route}"
        yield Point.AGENT, one.value or other.value or AGENT, subject, one, other
        profile = one.value
    if not profile:
        return
    subject = f"{asked.method} {asked.route}"
    yield Point.ROUTE, profile, subject, *both(lambda policy: _routed(policy, was.value, asked))
    if asked.audience:
        narrowed = both(lambda policy: _Said(policy.narrow(asked.audience) or ""))
        yield Point.NARROWING, profile, asked.audience, *narrowed
    if asked.upstream:
        acting = both(lambda policy: _acting(policy, asked.upstream))
        yield Point.NARROWING, profile, f"upstream {asked.upstream}", *acting
    if asked.purpose:
        known = both(lambda policy: _known_purpose(policy, asked.purpose))
        yield Point.PURPOSE, profile, asked.purpose, *known


def _placed(policy: Snapshot, asked: Asked) -> _Said:
    if asked.issuer:
        return _said(policy.place(asked.issuer, dict(asked.claims)))
    route = policy.route(asked.route)
    if route is None or not route.anonymous:
        return NOTHING
    decision = policy.decide_route(ANONYMOUS, route.id, asked.method)
    return _Said(route.anonymous if decision.allowed else "", decision.rules)


def _agent(policy: Snapshot, asked: Asked) -> _Said:
    route = policy.route(asked.route)
    if route is None or not route.tool or not asked.task_scope:
        return NOTHING
    roles = dict(asked.claims).get("roles", frozenset())
    return _said(policy.place_agent(roles, asked.task_scope, route.tool))


def _routed(policy: Snapshot, audience: str, asked: Asked) -> _Said:
    """The verdict, on a route that is there and has the method."""
    route = policy.route(asked.route)
    if route is None or asked.method not in route.methods:
        return NOTHING
    return _said(policy.decide_route(audience, route.id, asked.method))


def _acting(policy: Snapshot, name: str) -> _Said:
    upstream = policy.upstreams.get(name)
    return _Said(upstream.profile if upstream is not None and upstream.may_retrieve else "")


def _known_purpose(policy: Snapshot, purpose: str) -> _Said:
    return _Said(purpose if purpose in policy.vocabulary.purposes else "")


def _said(decision: Decision) -> _Said:
    return _Said(decision.value, decision.rules)


def claims_key(claims: Mapping[str, Iterable[str]]) -> frozenset[tuple[str, frozenset[str]]]:
    """Claims in the form in which ``Asked`` holds them."""
    return frozenset((name, frozenset(values)) for name, values in claims.items())
