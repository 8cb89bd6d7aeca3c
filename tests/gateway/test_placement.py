"""Placement: claims and wishes become one subject, or a refusal with its own code.

Provenance: architecture section 5 ("Profiles"); issue part 4.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.stage import Reply, Stage


def scope(stage: Stage, audience: str, query: str = "", /, **changes: Any) -> Reply:
    token = stage.issuers.token(audience, **changes)
    return stage.ask("GET", f"/v1/scope{query}", token=token)


def code(reply: Reply) -> str:
    return str(json.loads(reply.body)["code"])


@pytest.mark.parametrize("audience", ["customer", "partner", "employee"])
def test_people_are_placed_by_their_groups(stage: Stage, audience: str) -> None:
    """One audience each; the scope names it, its compartments, the digest and what it may read."""
    document = json.loads(scope(stage, audience).body)
    assert (document["audience"], document["profiles"]) == (audience, [audience])
    assert document["tenants"] == ["acme"]
    assert document["policy_digest"] == stage.snapshot.digest
    vocabulary, grant = stage.snapshot.vocabulary, stage.snapshot.grant([audience])
    for consent, classes in (("none", grant.plain), ("granted", grant.consented)):
        boxes = [
            box["facets"]
            for box in document["readable"]
            if consent == "granted" or box["consent"] == "none"
        ]
        inside = {
            class_id
            for class_id in range(vocabulary.class_count)
            if any(
                all(value in box[facet] for facet, value in vocabulary.facets_of(class_id).items())
                for box in boxes
            )
        }
        assert inside == set(classes)


def test_agent_is_placed_by_role_task_and_tool(stage: Stage) -> None:
    """The one verified task scope is the default; the tool is the matched route."""
    document = json.loads(scope(stage, "agent").body)
    assert (document["audience"], document["profiles"]) == ("agent", ["agent:reader"])
    assert document["task_scope"] == "answer"


def test_agent_with_several_tasks_must_name_one(stage: Stage) -> None:
    """No default among several; a named one must be verified."""
    claims = {"roles": ["engineer"], "tasks": ["answer", "draft"]}
    assert code(scope(stage, "agent", **claims)) == "task_scope_required"
    drafting = json.loads(scope(stage, "agent", "?task_scope=draft", **claims).body)
    assert drafting["profiles"] == ["agent:drafter"]
    refused = scope(stage, "agent", "?task_scope=audit", **claims)
    assert (refused.status, code(refused)) == (403, "task_scope_refused")


@pytest.mark.parametrize(
    "claims",
    [
        {"tasks": []},
        {"tasks": None},
        {"roles": []},
        {"roles": ["assistant"], "tasks": ["audit"]},
        {"roles": ["nonsense"]},
        {"groups": []},
    ],
)
def test_agent_without_a_row_is_placed_nowhere(stage: Stage, claims: dict[str, Any]) -> None:
    """No row, no profile: 403 no_audience, never a downgrade."""
    reply = scope(stage, "agent", **claims)
    assert (reply.status, code(reply)) == (403, "no_audience")


def test_agent_has_no_tool_on_a_portal(stage: Stage) -> None:
    """A route without a tool has no profile for agents."""
    reply = stage.ask("GET", "/portal/customer/x", token=stage.issuers.token("agent"))
    assert (reply.status, code(reply)) == (403, "no_audience")
    assert stage.upstream.requests == []


def test_audience_in_the_request_only_narrows(stage: Stage) -> None:
    """The grant is the intersection, whichever of the two is larger."""
    own = stage.snapshot.grant(["employee"]).plain
    for audience, wished in (("employee", "customer"), ("customer", "employee")):
        document = json.loads(scope(stage, audience, f"?audience={wished}").body)
        assert document["profiles"] == [audience, wished]
        both = stage.snapshot.grant([audience, wished]).plain
        assert set(both) <= set(stage.snapshot.grant([audience]).plain)
        assert set(both) <= set(own)
    assert code(scope(stage, "customer", "?audience=nobody")) == "audience_refused"


def test_denied_group_beats_its_audience(stage: Stage) -> None:
    """A suspended customer and a contractor are placed nowhere."""
    assert code(scope(stage, "customer", groups=["customers", "suspended"])) == "no_audience"
    assert code(scope(stage, "employee", groups=["staff-all", "contractors"])) == "no_audience"


def test_people_cannot_claim_a_task_scope(stage: Stage) -> None:
    """A task scope is verified or refused, also where it would change nothing."""
    assert code(scope(stage, "customer", "?task_scope=answer")) == "task_scope_refused"


def test_anonymous_enters_by_an_explicit_row_only(stage: Stage) -> None:
    """Customer portal for GET, nothing else, no guarded route."""
    assert stage.ask("GET", "/portal/customer/x").status == 200
    assert stage.ask("POST", "/portal/customer/x", body=b"x").status == 401
    assert stage.ask("GET", "/portal/partner/x").status == 401
    body = json.dumps({"query": "q"}).encode()
    json_type = [("Content-Type", "application/json")]
    assert stage.ask("POST", "/v1/retrieve", headers=json_type, body=body).status == 401
    assert stage.retrieval.asks == []


def test_stations_are_recorded_in_order(stage: Stage) -> None:
    """Every request leaves one record, refused ones too."""
    scope(stage, "customer")
    stage.ask("GET", "/portal/employee/x", token=stage.issuers.token("customer"))
    allowed, denied = stage.records.all
    assert [one.station for one in allowed.stations] == [
        "admit",
        "match",
        "identify",
        "place",
        "decide",
        "inspect",
    ]
    assert (allowed.decision, allowed.audience, allowed.route) == ("allow", "customer", "scope")
    assert (denied.decision, denied.status, denied.code) == ("deny", 403, "forbidden")
