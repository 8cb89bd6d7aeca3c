"""Station *place*: a caller and its wishes become a subject, under one pinned snapshot.

Laws
    * Roles, task scopes and compartments come from verified claims. A wish selects among them
      or narrows; it never adds.
    * The tool of an agent is the matched route. No row, no profile; two profiles, refusal.
    * A delegated caller is placed like any other and then intersected with the upstream.

Source: architecture section 5 ("Profiles").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.errors import Code, Refusal, no_credential
from gateway.reasons import Why
from gateway.routes.wishes import Wish
from policies.bindings import Route, Upstream
from policies.decision import Decision
from policies.snapshot import Snapshot
from policies.subject import Principal, Subject

ANONYMOUS: Final = "anonymous"
AGENT: Final = "agent"


def _unnoted(decision: Decision) -> None:
    """Whoever places a caller without a record of it."""


def place(
    snapshot: Snapshot,
    route: Route,
    method: str,
    *,
    principal: Principal | None,
    actor: Upstream | None,
    wish: Wish,
    decided: Callable[[Decision], None] = _unnoted,
) -> Subject:
    """The subject that this caller is on this route.

    ``decided`` is told of each decision of the policy, a refusing one included.

    Raises: Refusal ``unauthenticated`` (anonymous where no row says so), ``no_audience``,
    ``ambiguous_audience``, ``task_scope_required``, ``task_scope_refused``,
    ``audience_refused`` or ``bad_request`` (an unknown purpose).
    """
    if wish.purpose and wish.purpose not in snapshot.vocabulary.purposes:
        raise Refusal(Code.BAD_REQUEST, "unknown purpose", why=Why.UNKNOWN_PURPOSE)
    if principal is None:
        audience = profile = _anonymous(snapshot, route, method, decided)
        task_scope = _task_scope(frozenset(), wish)
    else:
        audience = _value(snapshot.place(principal.issuer, principal.claims), decided)
        task_scope = _task_scope(principal.claims.get("task_scopes", frozenset()), wish)
        profile = audience
        if audience == AGENT:
            profile = _agent_profile(snapshot, route, principal, task_scope, decided)
    profiles = [profile]
    if wish.audience:
        narrowed = snapshot.narrow(wish.audience)
        if narrowed is None:
            raise Refusal(Code.AUDIENCE_REFUSED, "not a profile", why=Why.AUDIENCE_REFUSED)
        profiles.append(narrowed)
    if actor is not None:
        profiles.append(actor.profile)
    return Subject(
        subject_id=principal.subject_id if principal is not None else ANONYMOUS,
        audience=audience,
        grant=snapshot.grant(profiles),
        tenants=_tenants(principal, actor),
        jurisdictions=principal.jurisdictions if principal is not None else (),
        task_scope=task_scope,
        purpose=wish.purpose,
        actor=actor.name if actor is not None else "",
    )


def _anonymous(
    snapshot: Snapshot, route: Route, method: str, decided: Callable[[Decision], None]
) -> str:
    """The audience of a caller without credentials, by the route's own row."""
    decision = snapshot.decide_route(ANONYMOUS, route.id, method)
    decided(decision)
    if not route.anonymous or not decision.allowed:
        raise no_credential()
    return route.anonymous


def _task_scope(permitted: frozenset[str], wish: Wish) -> str:
    """The wished task scope if it is a verified one; the only one if there is just one."""
    if wish.task_scope:
        if wish.task_scope not in permitted:
            raise Refusal(
                Code.TASK_SCOPE_REFUSED,
                "not among the verified ones",
                why=Why.TASK_SCOPE_REFUSED,
            )
        return wish.task_scope
    return next(iter(permitted)) if len(permitted) == 1 else ""


def _agent_profile(
    snapshot: Snapshot,
    route: Route,
    principal: Principal,
    task_scope: str,
    decided: Callable[[Decision], None],
) -> str:
    if not route.tool:
        raise Refusal(Code.NO_AUDIENCE, "agents have no tool here", why=Why.NO_TOOL)
    if not task_scope:
        if principal.claims.get("task_scopes"):
            raise Refusal(
                Code.TASK_SCOPE_REQUIRED,
                "several verified task scopes",
                why=Why.TASK_SCOPE_REQUIRED,
            )
        raise Refusal(Code.NO_AUDIENCE, "no verified task scope", why=Why.NO_TASK_SCOPE)
    roles = principal.claims.get("roles", frozenset())
    return _value(snapshot.place_agent(roles, task_scope, route.tool), decided)


def _value(decision: Decision, decided: Callable[[Decision], None]) -> str:
    decided(decision)
    if decision.allowed:
        return decision.value
    ambiguous = decision.reason == "ambiguous_audience"
    code = Code.AMBIGUOUS_AUDIENCE if ambiguous else Code.NO_AUDIENCE
    raise denied(code, decision)


def denied(code: Code, decision: Decision) -> Refusal:
    """The refusal that a denial of the policy is, with the policy's own word for why."""
    told = f"{decision.reason} {' '.join(decision.rules)}".strip()
    return Refusal(code, told, why=Why(decision.reason))


def _tenants(principal: Principal | None, actor: Upstream | None) -> tuple[str, ...]:
    own = principal.tenants if principal is not None else ()
    if actor is None or actor.tenants is None:
        return own
    return tuple(tenant for tenant in own if tenant in actor.tenants)
