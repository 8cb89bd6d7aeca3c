"""What the stations leave for the record: through the running gateway, one request at a time.

Provenance: issue 3 item 7 (profile, route, effect, reason, rule ids, counts).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.decisions.reader import read_records
from gateway.decisions.record import DecisionRecord
from gateway.decisions.writing import values_of
from policies.decision import Effect
from tests.gateway import answers
from tests.gateway.stage import Stage
from tests.gateway.test_delegation import through

JSON = [("Content-Type", "application/json")]


def recorded(stage: Stage) -> DecisionRecord:
    """The record of the latest request, as its reader gets it. A record follows its answer."""
    assert stage.records.some.wait(5)
    (record,) = read_records([json.dumps(values_of(stage.records.all[-1], sampled=1.0))])
    return record


def get(stage: Stage, target: str, audience: str | None = None, **claims: Any) -> DecisionRecord:
    token = stage.issuers.token(audience, **claims) if audience is not None else None
    stage.records.all.clear()
    stage.records.some.clear()
    stage.ask("GET", target, token=token)
    return recorded(stage)


def retrieve(stage: Stage, audience: str = "customer", **body: str) -> DecisionRecord:
    stage.records.all.clear()
    stage.records.some.clear()
    stage.ask(
        "POST",
        "/v1/retrieve",
        token=stage.issuers.token(audience),
        headers=JSON,
        body=json.dumps({"query": "how", **body}).encode(),
    )
    return recorded(stage)


def test_placement_and_route_name_their_rules(stage: Stage) -> None:
    person = get(stage, "/v1/scope", "employee")
    assert person.rules == ("A-EMP-1", "R-SCOPE-1")
    assert (person.issuer, person.claims) == ("idp:staff", ("groups=grp:staff",))
    assert (person.effect, person.reason, person.code) == (Effect.ALLOW, "rule", "")
    agent = get(stage, "/v1/scope", "agent")
    assert (agent.profile, agent.profiles) == ("agent:reader", ("agent:reader",))
    assert agent.rules[0] == "A-AGT-1"
    assert agent.rules[-1] == "R-SCOPE-1"
    assert len(agent.rules) == 3
    assert agent.task_scope == "answer"


def test_an_anonymous_visitor_is_recorded_with_the_row_that_lets_it_in(stage: Stage) -> None:
    record = get(stage, "/portal/customer/x")
    assert record.rules == ("R-ANON-1", "R-CUS-1")
    assert (record.issuer, record.claims, record.audience) == ("", (), "customer")
    assert record.request_obstacles == ()


@pytest.mark.parametrize(
    ("target", "audience", "claims", "code", "station", "reason", "rules"),
    [
        ("/v1//scope", "customer", {}, "bad_path", "admit", "", ()),
        ("/v1/scope/", "customer", {}, "bad_path", "match", "", ()),
        ("/nowhere", "customer", {}, "not_found", "match", "", ()),
        ("/v1/scope", None, {}, "unauthenticated", "identify", "no_credential", ()),
        ("/v1/scope", "customer", {"exp": 1}, "unauthenticated", "identify", "expired", ()),
        ("/v1/scope?x=1", "customer", {}, "bad_query", "identify", "", ()),
        ("/portal/partner/x", None, {}, "unauthenticated", "place", "no_credential", ()),
        ("/v1/scope", "customer", {"groups": []}, "no_audience", "place", "no_audience", ()),
        (
            "/v1/scope",
            "customer",
            {"groups": ["customers", "suspended"]},
            "no_audience",
            "place",
            "no_audience",
            ("A-CUS-X",),
        ),
        ("/portal/employee/x", "customer", {}, "forbidden", "decide", "no_rule", ("A-CUS-1",)),
    ],
)
def test_a_refusal_says_which_station_refused_and_which_rule_spoke(
    stage: Stage,
    target: str,
    audience: str | None,
    claims: dict[str, Any],
    code: str,
    station: str,
    reason: str,
    rules: tuple[str, ...],
) -> None:
    record = get(stage, target, audience, **claims)
    assert (record.effect, record.code, record.station) == (Effect.DENY, code, station)
    assert (record.reason, record.rules) == (reason, rules)
    assert bool(record.request_obstacles) == (station in {"admit", "match", "identify"})


def test_wishes_stand_in_the_record_only_as_words_of_the_policy(stage: Stage) -> None:
    """A caller's own words do not, whether they are refused or not."""
    stage.retrieval.script = lambda ask: answers.answer(ask, [])
    named = retrieve(stage, audience="customer", purpose="audit")
    assert named.purpose == "audit"
    narrowed = get(stage, "/v1/scope?audience=customer", "employee")
    assert (narrowed.narrowed, narrowed.profiles) == ("customer", ("employee", "customer"))
    for query in ("audience=canary", "purpose=canary", "task_scope=canary"):
        record = get(stage, f"/v1/scope?{query}", "employee")
        assert record.effect is Effect.DENY
        assert (record.narrowed, record.purpose, record.task_scope) == ("", "", "")
        assert record.request_obstacles == ("refused for a word that no record keeps",)
    known = get(stage, "/v1/scope?task_scope=audit", "agent")
    assert (known.code, known.task_scope) == ("task_scope_refused", "audit")


def test_units_are_counted_as_they_left_and_as_they_were_kept(stage: Stage) -> None:
    """A leak of another class, and one whose class is permitted and whose tenant is not."""
    snapshot = stage.snapshot
    stage.registry.labels = {
        answers.key("open"): answers.label(snapshot),
        answers.key("leak"): answers.label(snapshot, visibility="internal"),
        answers.key("fresh"): answers.label(snapshot, tenant="elsewhere"),
    }
    stage.retrieval.script = lambda ask: answers.answer(ask, ["open", "leak", "fresh"])
    record = retrieve(stage)
    assert (record.units.returned, record.units.denied, record.units.stale) == (1, 2, 0)
    rows = {one.class_id: one for one in record.classes}
    public, internal = (
        answers.label(snapshot).class_id,
        answers.label(snapshot, visibility="internal"),
    )
    assert (rows[public].allowed, rows[public].denied, rows[public].not_by_class) == (1, 1, 1)
    assert (rows[internal.class_id].denied, rows[internal.class_id].not_by_class) == (1, 0)
    assert record.effect is Effect.ALLOW


def test_a_refused_answer_returns_nothing_and_counts_what_was_denied(stage: Stage) -> None:
    """A retrieval that insists on a leak: 503, and the record has it all the same."""
    stage.registry.labels = {
        answers.key("leak"): answers.label(stage.snapshot, visibility="internal")
    }
    insisting = answers.answer
    stage.retrieval.script = lambda ask: insisting(ask.model_copy(update={"exclude": ()}), ["leak"])
    record = retrieve(stage)
    assert (record.effect, record.code) == (Effect.DENY, "retrieval_unavailable")
    assert (record.units.returned, record.units.denied) == (0, 1)


def test_a_request_that_is_walked_twice_is_one_record_of_the_second_walk(stage: Stage) -> None:
    """The policy moved under it; what was kept back on the first walk stays counted."""
    stage.registry.labels = {
        answers.key("open"): answers.label(stage.snapshot),
        answers.key("leak"): answers.label(stage.snapshot, visibility="internal"),
    }
    stage.registry.digests = ["0" * 64, stage.snapshot.digest]
    shown = [["open", "leak"], ["open"]]
    stage.retrieval.script = lambda ask: answers.answer(ask, shown.pop(0))
    record = retrieve(stage)
    assert len(stage.records.all) == 1
    assert record.rules == ("A-CUS-1", "R-RET-1")
    assert (record.units.returned, record.units.denied) == (1, 1)
    assert (record.station, record.effect) == ("inspect", Effect.ALLOW)


def test_a_delegation_names_the_caller_and_the_upstream_that_acts(stage: Stage) -> None:
    stage.registry.labels = {answers.key("open"): answers.label(stage.snapshot)}
    stage.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    delegated = through(stage, "customer", "customer")
    stage.records.all.clear()
    stage.records.some.clear()
    stage.ask(
        "POST",
        "/v1/retrieve",
        token=stage.issuers.service("portal-customer"),
        headers=[*JSON, ("X-Gateway-Delegation", delegated)],
        body=b'{"query": "q"}',
    )
    record = recorded(stage)
    assert (record.issuer, record.actor) == ("idp:customers", "customer-portal")
    assert record.units.returned == 1
