"""Whether an open stream would be allowed still, in the same name and to the same place."""

from __future__ import annotations

from typing import Protocol

from gateway import stations
from gateway.authn.bearer import Authenticator
from gateway.authn.own_keys import OwnKeys
from gateway.errors import Code, Refusal
from gateway.holder import SnapshotHolder
from gateway.reasons import Why
from gateway.routes.wishes import Wish
from gateway.stations import Granted
from gateway.streams.register import End
from policies.bindings import Route, Upstream
from policies.decision import Decision
from policies.subject import Subject

_IDENTITY = frozenset({Code.UNAUTHENTICATED, Code.IDENTITY_UNAVAILABLE})


class Deciding(Protocol):
    """The parts of a data plane that decide."""

    @property
    def snapshots(self) -> SnapshotHolder: ...
    @property
    def authenticator(self) -> Authenticator: ...
    @property
    def keys(self) -> OwnKeys: ...
    @property
    def gateway_id(self) -> str: ...


async def decided_anew(parts: Deciding, granted: Granted, *, opening: bool) -> End | None:
    """Why this grant holds no more under the policy in force; None when it does.

    ``opening``: it opened a socket, so its origin counts. Cost: 30 us with a remembered token.
    """
    admitted = granted.placed.identified.matched.admitted
    try:
        matched = stations.match(admitted, parts.snapshots.current)
        if opening:
            stations.may_open(matched)
        identified = await stations.identify(
            matched, parts.authenticator, parts.keys, gateway_id=parts.gateway_id
        )
        placed = stations.place(identified, Wish(), _unnoted)
        again = stations.decide(placed, _unnoted)
    except Refusal as refusal:
        if refusal.code not in _IDENTITY:
            return End.NARROWED
        return End.REVOKED if refusal.why is Why.REVOKED else End.EXPIRED
    return None if _covers(granted, again) else End.NARROWED


def _unnoted(decision: Decision) -> None:
    """The record of the stream holds the decision that opened it."""


def _covers(before: Granted, now: Granted) -> bool:
    """Whether all that an upstream was told of the caller is still true, and nothing that the
    caller might read was taken away."""
    was, here = before.placed, now.placed
    return (
        _place(before) == _place(now)
        and _words(was.subject) == _words(here.subject)
        and _keeps(was.subject.grant.plain, here.subject.grant.plain)
        and _keeps(was.subject.grant.consented, here.subject.grant.consented)
    )


def _place(granted: Granted) -> tuple[str, str, Upstream]:
    matched = granted.placed.identified.matched
    route: Route = matched.route
    return route.id, route.mode, matched.snapshot.upstreams[route.upstream]


def _words(subject: Subject) -> tuple[object, ...]:
    return (
        subject.subject_id,
        subject.audience,
        subject.grant.profiles,
        subject.tenants,
        subject.jurisdictions,
        subject.task_scope,
        subject.purpose,
        subject.actor,
    )


def _keeps(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    return before == now or set(before) <= set(now)
