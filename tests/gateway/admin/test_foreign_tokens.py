"""Tokens that are good for something else, held against the operators' surface.

Provenance: issue 3, point 3; attack log section J. A token of an agent, a delegation and an
assertion are sound tokens that an upstream or an agent holds all day long; none of them may become
an operator's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.authn import delegation
from gateway.relay import assertion
from gateway.surfaces.admin.shadow import SHADOW_PATH
from gateway.surfaces.admin.threads import EDIT_PATH, HISTORY_PATH, LIST_PATH, SHOW_PATH
from gateway.surfaces.admin.wire import EXPLAIN_PATH, LIVE_PATH
from policies.subject import Principal
from tests.gateway.admin.asking import Operators, live, operator
from tests.gateway.admin.test_operators import ISSUERS, REVIEWER, refused
from tests.gateway.tokens import URLS

Asking = Callable[..., Any]
DOORS = (LIVE_PATH, EXPLAIN_PATH, SHADOW_PATH, LIST_PATH, SHOW_PATH, HISTORY_PATH, EDIT_PATH)
ROLES = (
    "policy-reviewer", "risk-officer", "knowledge-owner", "policy-ci", "assistant", "analyst",
    "engineer", "writer", "responder", "auditor", "role:policy_reviewer", "role:risk_officer",
    "role:knowledge_owner", "role:policy_ci",
)  # fmt: skip
"""Every word that some provider may say of an operator, and our own words for them."""
UPSTREAM = "customer-portal"


def reviewer() -> Principal:
    """A reviewer who visits a portal, as the gateway knows her."""
    return Principal(
        issuer="idp:staff",
        subject_id="s.reviewer",
        claims={
            "groups": frozenset({"grp:staff"}),
            "roles": frozenset({"role:policy_reviewer", "role:knowledge_owner"}),
        },
        tenants=("acme",),
        jurisdictions=(),
        expires_at=time.time() + 300,
    )


def delegated(operators: Operators) -> str:
    """What her portal gets with each of her requests."""
    plane = operators.world.gateway.live._plane
    return delegation.issue(
        plane.keys,
        gateway_id=plane.gateway_id,
        caller=reviewer(),
        upstream=UPSTREAM,
        digest=operators.world.gateway.snapshot.digest,
        now=time.time(),
    ).decode()


def asserted(operators: Operators, audience: str) -> str:
    plane = operators.world.gateway.live._plane
    return assertion.assertion(
        plane.keys,
        gateway_id=plane.gateway_id,
        token_audience=audience,
        subject_id="s.reviewer",
        audience="employee",
        profile="employee",
        digest=operators.world.gateway.snapshot.digest,
        request_id="r" * 32,
        method="POST",
        path=LIVE_PATH,
        now=time.time(),
    ).decode()


@pytest.mark.parametrize("alias", [one for one in URLS if one not in {"idp:staff", "idp:services"}])
def test_no_other_provider_can_make_an_operator(
    shared: Operators, asking: Asking, alias: str
) -> None:
    """Agents, customers and partners: whatever roles, groups and tasks their provider writes into
    a sound token, it says nothing that `rules/admin.csv` allows."""
    words = {"roles": list(ROLES), "groups": ["agents", "customers", "partners", "staff-all"],
             "tasks": ["audit", "incident_response"], "sources": ["*"], "tenants": ["acme"],
             "tenant": "acme"}  # fmt: skip
    token = ISSUERS.sign(alias, ISSUERS.claims(alias, **words))
    before = asking(shared.journaled)
    for door in DOORS:
        refused(asking(shared.post, door, token, live()), 403, "forbidden")
    assert asking(shared.journaled) == before


@pytest.mark.parametrize("door", DOORS)
def test_what_the_gateway_signs_for_upstreams_opens_no_door(
    shared: Operators, asking: Asking, door: str
) -> None:
    """A delegation of a reviewer, and assertions about her, for an upstream and for the gateway
    itself: signed by our own key, and no operator's token."""
    plane = shared.world.gateway.live._plane
    audiences = ("urn:portal:customer", plane.gateway_id, "https://gateway.example")
    before = asking(shared.journaled)
    for token in (delegated(shared), *(asserted(shared, one) for one in audiences)):
        refused(asking(shared.post, door, token, live()), 401, "unauthenticated")
    assert asking(shared.journaled) == before


@pytest.mark.parametrize("door", DOORS)
def test_a_delegation_beside_ones_own_token_adds_nothing(
    shared: Operators, asking: Asking, door: str
) -> None:
    """On a retrieval route the pair is the caller. Here it is the upstream, the agent or the
    customer alone, whatever else the request says of a reviewer."""
    told = {
        "x-gateway-delegation": delegated(shared),
        "x-gateway-assertion": asserted(shared, "urn:portal:customer"),
        "x-gateway-subject": "s.reviewer",
        "x-gateway-audience": "employee",
        "x-gateway-profile": "employee",
    }
    holders = (
        ISSUERS.service("portal-customer"),
        ISSUERS.token("agent"),
        ISSUERS.token("customer"),
    )
    before = asking(shared.journaled)
    for token in holders:
        refused(asking(shared.post, door, token, live(), **told), 403, "forbidden")
    refused(asking(shared.post, door, None, live(), **told), 401, "unauthenticated")
    assert asking(shared.journaled) == before


def test_the_reviewers_own_token_is_what_opens_it(shared: Operators, asking: Asking) -> None:
    """The control: the same door, the same question, her own token."""
    digest = shared.world.gateway.snapshot.digest
    reply = asking(shared.live, operator(ISSUERS, REVIEWER), live(digest=digest))
    assert reply.status_code == 200, reply.text
