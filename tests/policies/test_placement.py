"""Who is placed where: the four small decision kinds, as stations ask for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policies.decision import Effect
from policies.snapshot import Snapshot, load

Edit = Callable[[str, str, str], None]


def groups(*aliases: str) -> dict[str, frozenset[str]]:
    return {"groups": frozenset(aliases)}


def test_a_matching_row_places_and_is_named(default: Snapshot) -> None:
    decision = default.place("idp:staff", groups("grp:staff"))
    assert (decision.effect, decision.value, decision.reason) == (Effect.ALLOW, "employee", "rule")
    assert decision.rules == ("A-EMP-1",)
    assert decision.digest == default.digest


def test_a_deny_row_on_any_claim_denies_the_audience(default: Snapshot) -> None:
    decision = default.place("idp:staff", groups("grp:staff", "grp:contractors"))
    assert (decision.allowed, decision.value, decision.reason) == (False, "", "no_audience")
    assert decision.rules == ("A-EMP-X",)


@pytest.mark.parametrize(
    ("issuer", "claims"),
    [
        ("idp:staff", {}),
        ("idp:staff", groups()),
        ("idp:staff", groups("")),
        ("", groups("grp:staff")),
        ("idp:partners", groups("grp:staff")),
        ("idp:staff", groups("staff-all")),
        ("idp:staff", groups("employee")),
        ("idp:staff", {"roles": frozenset({"grp:staff"})}),
        ("idp:staff", groups("grp:staff|grp:staff")),
        ("IDP:STAFF", groups("grp:staff")),
        ("idp:staff|idp:staff", groups("grp:staff")),
        ("idp:services", groups("grp:agents")),
    ],
)
def test_nobody_else_is_placed(
    issuer: str, claims: dict[str, frozenset[str]], default: Snapshot
) -> None:
    """Traps 14 and 17: empty values, raw words and another issuer's words place nobody."""
    decision = default.place(issuer, claims)
    assert (decision.allowed, decision.value, decision.reason) == (False, "", "no_audience")


def test_two_audiences_are_refused_and_never_merged(folder: Path, edit: Edit) -> None:
    edit(
        "rules/audience.csv",
        "p, A-PAR-1",
        "p, A-ODD-1, idp:staff, groups, grp:staff, customer, allow\np, A-PAR-1",
    )
    decision = load(folder).place("idp:staff", groups("grp:staff"))
    assert (decision.allowed, decision.value) == (False, "")
    assert decision.reason == "ambiguous_audience"
    assert decision.rules == ("A-EMP-1", "A-ODD-1")


@pytest.mark.parametrize(
    ("roles", "task", "tool", "profile", "reason"),
    [
        ({"role:assistant"}, "answer", "retrieve", "agent:reader", "rule"),
        ({"role:engineer"}, "answer", "pack", "agent:analyst", "rule"),
        ({"role:engineer"}, "draft", "unit", "agent:drafter", "rule"),
        ({"role:engineer"}, "incident_response", "scope", "agent:incident", "rule"),
        ({"role:engineer", "role:analyst"}, "answer", "retrieve", "agent:analyst", "rule"),
        ({"role:assistant", "role:analyst"}, "answer", "retrieve", "", "ambiguous_audience"),
        ({"role:assistant", "role:auditor"}, "audit", "retrieve", "", "no_audience"),
        ({"role:assistant"}, "audit", "retrieve", "", "no_audience"),
        ({"role:assistant"}, "answer", "", "", "no_audience"),
        ({"role:assistant"}, "", "retrieve", "", "no_audience"),
        ({"assistant"}, "answer", "retrieve", "", "no_audience"),
        (set(), "answer", "retrieve", "", "no_audience"),
    ],
)
def test_an_agents_profile_comes_from_role_task_and_tool(
    roles: set[str], task: str, tool: str, profile: str, reason: str, default: Snapshot
) -> None:
    decision = default.place_agent(frozenset(roles), task, tool)
    assert (decision.value, decision.reason) == (profile, reason)
    assert decision.allowed is bool(profile)


@pytest.mark.parametrize(
    ("audience", "profile"),
    [
        ("customer", "customer"),
        ("employee", "employee"),
        ("agent:reader", "agent:reader"),
        ("agent", None),
        ("anonymous", None),
        ("", None),
        ("Customer", None),
    ],
)
def test_only_profiles_can_narrow(audience: str, profile: str | None, default: Snapshot) -> None:
    assert default.narrow(audience) == profile


@pytest.mark.parametrize(
    ("audience", "route", "method", "reason"),
    [
        ("customer", "retrieve", "POST", "rule"),
        ("agent:reader", "retrieve", "POST", "rule"),
        ("agent", "pack", "GET", "rule"),
        ("anonymous", "portal-customer", "HEAD", "rule"),
        ("anonymous", "portal-customer", "POST", "no_rule"),
        ("anonymous", "retrieve", "POST", "no_rule"),
        ("customer", "retrieve", "GET", "no_rule"),
        ("customer", "retrieve", "post", "no_rule"),
        ("customer", "portal-employee", "GET", "no_rule"),
        ("agent:analyst", "portal-employee", "GET", "denied_by_rule"),
        ("nobody", "retrieve", "POST", "no_rule"),
        ("", "", "", "no_rule"),
    ],
)
def test_a_route_is_open_to_whom_a_row_names(
    audience: str, route: str, method: str, reason: str, default: Snapshot
) -> None:
    decision = default.decide_route(audience, route, method)
    assert decision.reason == reason
    assert decision.allowed is (reason == "rule")
    assert decision.value == (route if decision.allowed else "")


@pytest.mark.parametrize(
    ("audience", "purpose", "approver", "ttl", "allowed"),
    [
        ("employee", "audit", "role:risk_officer", "8h", True),
        ("agent:auditor", "audit", "role:risk_officer", "15m", True),
        ("employee", "audit", "role:risk_officer", "24h", False),
        ("employee", "audit", "role:auditor", "1h", False),
        ("customer", "audit", "role:risk_officer", "1h", False),
        ("", "", "", "", False),
    ],
)
def test_consent_needs_the_right_approver_purpose_and_time(
    audience: str, purpose: str, approver: str, ttl: str, allowed: bool, default: Snapshot
) -> None:
    assert default.decide_consent(audience, purpose, approver, ttl).allowed is allowed


def test_a_route_that_is_not_in_the_list_is_none(default: Snapshot) -> None:
    assert [default.route(name) for name in ("", "nowhere", "Scope")] == [None] * 3
    assert {route.id: default.route(route.id) for route in default.routes} == {
        route.id: route for route in default.routes
    }


def test_trap_34_unknown_callers_leave_nothing_behind(default: Snapshot) -> None:
    """A cache keyed by raw names would grow with every stranger."""
    before = {kind: len(r.entries) for kind, r in default.table.relations.items()}
    for number in range(500):
        default.place(f"idp:{number}", groups(f"grp:{number}"))
        default.decide_route(f"audience{number}", "retrieve", "POST")
    assert {kind: len(r.entries) for kind, r in default.table.relations.items()} == before
