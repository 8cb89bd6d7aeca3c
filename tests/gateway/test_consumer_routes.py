"""The routes behind a pack against a retrieval that is wrong or hostile, and against callers.

Provenance: promises G3, G4 over the operations check, feedback, delivery and units; attack log
rows F8-F13 (bodies), F17 (cursors).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from gateway.journal.event import EventAction
from retrieval.contract import (
    Answer,
    Ask,
    CheckResponse,
    ClaimResult,
    DeliveredUnit,
    DeliveryResponse,
    FeedbackResponse,
    ListedUnit,
    UnitPage,
)
from tests.gateway import answers
from tests.gateway.stage import Reply, Stage
from tests.gateway.test_guard import JSON, LEAK, code, guarded

__all__ = ["guarded"]

PACK = UUID(int=7)
CITED = {"pack_id": str(PACK), "canonical_address": "law/open#1", "source_revision": 1}
CHECK: Mapping[str, Any] = {"claims": [{"citations": [CITED]}]}
FEEDBACK: Mapping[str, Any] = {"pack_id": str(PACK), "kind": "sufficient"}


def post(stage: Stage, path: str, body: object) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    token = stage.issuers.token("customer")
    return stage.ask("POST", path, token=token, headers=JSON, body=raw)


def get(stage: Stage, target: str, audience: str = "customer") -> Reply:
    return stage.ask("GET", target, token=stage.issuers.token(audience))


def verdict(ask: Ask, **changes: Any) -> Answer:
    found = CheckResponse(
        verdict="accepted",
        claims=(ClaimResult(code="supported", citations=("valid",)),),
        unsurfaced_suspects=(),
        unsurfaced_gaps=(),
        audience_scope_applied=answers.scope_of(ask),
    )
    return Answer(status=200, check=found.model_copy(update=changes))


def listed(name: str, **changes: Any) -> ListedUnit:
    shown = answers.unit(name).model_dump(exclude={"score"})
    return ListedUnit(**{**shown, "text": None, **changes})


def page(ask: Ask, *units: ListedUnit, after: str | None = None) -> Answer:
    kept = tuple(one for one in units if one.unit_id not in ask.exclude)
    made = UnitPage(units=kept, next_after=after, audience_scope_applied=answers.scope_of(ask))
    return Answer(status=200, page=made)


def delivery(ask: Ask, *names: str, **changes: Any) -> Answer:
    made = DeliveryResponse(
        pack_id=PACK,
        thread_id=None,
        units=tuple(
            DeliveredUnit(
                unit_id=answers.unit_id(name),
                canonical_address=f"law/{name}#1",
                source_revision=1,
                current=True,
            )
            for name in names
            if answers.unit_id(name) not in ask.exclude
        ),
        suspect_unit_ids=(),
        gap_ids=(),
        delivered_at=datetime(2026, 1, 1, tzinfo=UTC),
        audience_scope_applied=answers.scope_of(ask),
    )
    return Answer(status=200, delivery=made.model_copy(update=changes))


# --- a retrieval that is wrong --------------------------------------------------------------


def leaking(guarded: Stage, act: Callable[[], Reply]) -> Reply:
    """The reply to something in which `leak` stands until it is excluded."""
    reply = act()
    assert reply.status == 200
    assert str(answers.unit_id(LEAK)).encode() not in reply.body
    assert [ask.exclude for ask in guarded.retrieval.asks] == [(), (answers.unit_id(LEAK),)]
    (event,) = guarded.journal.events
    assert event.action is EventAction.WITHHELD
    assert event.unit_ids == (answers.unit_id(LEAK),)
    return reply


def test_a_denied_unit_of_a_page_never_leaves(guarded: Stage) -> None:
    guarded.retrieval.script = lambda ask: page(ask, listed("open"), listed(LEAK))
    reply = leaking(guarded, lambda: get(guarded, "/v1/units"))
    assert [one["title"] for one in json.loads(reply.body)["units"]] == ["title of open"]


def test_a_denied_unit_of_a_delivery_never_leaves(guarded: Stage) -> None:
    guarded.retrieval.script = lambda ask: delivery(ask, "open", LEAK)
    leaking(guarded, lambda: get(guarded, f"/v1/packs/{PACK}"))


def test_a_denied_suspect_of_a_check_never_leaves(guarded: Stage) -> None:
    leak = answers.unit_id(LEAK)
    guarded.retrieval.script = lambda ask: verdict(
        ask, verdict="rejected", unsurfaced_suspects=() if leak in ask.exclude else (leak,)
    )
    leaking(guarded, lambda: post(guarded, "/v1/answers/check", CHECK))


def test_a_gap_that_does_not_exist_is_refused(guarded: Stage) -> None:
    """An id of no artifact, said twice: nothing leaves."""
    strange = uuid4()
    guarded.retrieval.script = lambda ask: verdict(ask, unsurfaced_gaps=(strange,))
    reply = post(guarded, "/v1/answers/check", CHECK)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")
    assert str(strange).encode() not in reply.body


@pytest.mark.parametrize(
    "changes",
    [{"text": "other words"}, {"canonical_address": "law/other#1"}, {"revision": 2}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_listed_unit_must_be_itself(guarded: Stage, changes: dict[str, object]) -> None:
    """An id that may be seen proves nothing about the words beside it."""
    guarded.retrieval.script = lambda ask: page(ask, listed("open", **changes))
    reply = get(guarded, "/v1/units")
    assert json.loads(reply.body)["units"] == []
    assert len(guarded.journal.events) == 1


def test_a_delivered_unit_must_have_its_own_address(guarded: Stage) -> None:
    other = DeliveredUnit(
        unit_id=answers.unit_id("open"),
        canonical_address="law/secret#1",
        source_revision=1,
        current=True,
    )
    guarded.retrieval.script = lambda ask: delivery(ask, units=() if ask.exclude else (other,))
    reply = get(guarded, f"/v1/packs/{PACK}")
    assert b"secret" not in reply.body
    assert len(guarded.journal.events) == 1


def test_an_older_revision_may_be_named_by_a_delivery(guarded: Stage) -> None:
    """It was delivered so: a reference is history, and no text stands beside it."""
    old = DeliveredUnit(
        unit_id=answers.unit_id("open"),
        canonical_address="law/open#1",
        source_revision=7,
        current=False,
    )
    guarded.retrieval.script = lambda ask: delivery(ask, units=(old,))
    reply = get(guarded, f"/v1/packs/{PACK}")
    assert json.loads(reply.body)["units"][0]["source_revision"] == old.source_revision
    assert guarded.journal.events == []


Script = Callable[[Ask], Answer]
MISSHAPEN: Mapping[str, tuple[str, Script]] = {
    "a unit for a page": ("/v1/units", lambda ask: answers.answer(ask, ["open"])),
    "a page that goes on elsewhere": (
        "/v1/units",
        lambda ask: page(ask, listed("open"), after="law/secret#1"),
    ),
    "a page behind nothing": ("/v1/units", lambda ask: page(ask, after="law/secret#1")),
    "another pack": (f"/v1/packs/{PACK}", lambda ask: delivery(ask, "open", pack_id=uuid4())),
    "other claims": (
        "/v1/answers/check",
        lambda ask: verdict(ask, claims=(ClaimResult(code="uncited", citations=()),)),
    ),
    "more claims": (
        "/v1/answers/check",
        lambda ask: verdict(ask, claims=(ClaimResult(code="supported", citations=("valid",)),) * 2),
    ),
    "another scope": (
        "/v1/answers/check",
        lambda ask: verdict(
            ask,
            audience_scope_applied=answers.scope_of(ask).model_copy(
                update={"profiles": ("employee",)}
            ),
        ),
    ),
    "nothing": ("/v1/feedback", lambda _: Answer(status=200)),
    "feedback for a check": (
        "/v1/answers/check",
        lambda _: Answer(status=200, feedback=FeedbackResponse()),
    ),
}


@pytest.mark.parametrize("name", MISSHAPEN)
def test_an_answer_to_another_question_is_refused(guarded: Stage, name: str) -> None:
    path, guarded.retrieval.script = MISSHAPEN[name]
    bodies = {"/v1/answers/check": CHECK, "/v1/feedback": FEEDBACK}
    reply = post(guarded, path, bodies[path]) if path in bodies else get(guarded, path)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")


# --- what is written down -------------------------------------------------------------------


def test_breaches_are_durable_before_the_verdict_leaves(guarded: Stage) -> None:
    """By kind and number; what was withdrawn since is nobody's breach."""
    claims = (
        ClaimResult(code="uncited", citations=()),
        ClaimResult(code="unsupported", citations=("not_delivered", "not_permitted")),
        ClaimResult(code="outdated", citations=("outdated",)),
    )
    asked = {"claims": [{}, {"citations": [CITED, CITED]}, {"citations": [CITED]}]}
    guarded.retrieval.script = lambda ask: verdict(ask, verdict="rejected", claims=claims)
    reply = post(guarded, "/v1/answers/check", asked)
    (found,) = guarded.journal.breaches
    assert reply.status == 200
    assert found.counts == {"not_delivered": 1, "uncited_claim": 1}
    assert found.request_id == reply.header("x-request-id")
    assert (found.audience, found.policy_digest) == ("customer", guarded.snapshot.digest)

    guarded.journal.full = True
    refused = post(guarded, "/v1/answers/check", asked)
    assert (refused.status, code(refused)) == (503, "journal_unavailable")
    assert b"claims" not in refused.body


def test_a_sound_answer_writes_nothing_down(guarded: Stage) -> None:
    guarded.journal.full = True
    guarded.retrieval.script = verdict
    assert post(guarded, "/v1/answers/check", CHECK).status == 200
    assert guarded.journal.breaches == []


def test_each_operation_is_a_route_of_its_own_in_the_decision_log(guarded: Stage) -> None:
    scripts: Mapping[str, Script] = {
        "check": verdict,
        "units": page,
        "delivery": lambda ask: delivery(ask, "open"),
        "feedback": lambda _: Answer(status=200, feedback=FeedbackResponse()),
    }
    guarded.retrieval.script = lambda ask: scripts[ask.operation](ask)
    post(guarded, "/v1/answers/check", CHECK)
    post(guarded, "/v1/feedback", FEEDBACK)
    get(guarded, "/v1/units")
    get(guarded, f"/v1/packs/{PACK}")
    assert [(one.route, one.decision, one.facts.decisions[-1].rules) for one in
            guarded.records.all] == [
        ("check", "allow", ("R-CHECK-1",)),
        ("feedback", "allow", ("R-FEED-1",)),
        ("units", "allow", ("R-UNITS-1",)),
        ("delivery", "allow", ("R-DEL-1",)),
    ]  # fmt: skip


# --- callers --------------------------------------------------------------------------------

BAD_BODIES: Mapping[str, tuple[str, object]] = {
    "a key twice": (
        "/v1/feedback",
        b'{"pack_id": "%s", "kind": "sufficient", "kind": "wrong_thread"}' % str(PACK).encode(),
    ),
    "an unknown key": ("/v1/feedback", {**FEEDBACK, "thread": "law"}),
    "an unknown kind": ("/v1/feedback", {**FEEDBACK, "kind": "excellent"}),
    "no pack": ("/v1/feedback", {"kind": "sufficient"}),
    "a pack that is no id": ("/v1/feedback", {**FEEDBACK, "pack_id": "law"}),
    "a unit that is no id": ("/v1/feedback", {**FEEDBACK, "unit_ids": [1]}),
    "too many units": ("/v1/feedback", {**FEEDBACK, "unit_ids": [str(PACK)] * 51}),
    "a list": ("/v1/feedback", [FEEDBACK]),
    "no claims": ("/v1/answers/check", {"claims": []}),
    "too many claims": ("/v1/answers/check", {"claims": [{}] * 65}),
    "too many citations": ("/v1/answers/check", {"claims": [{"citations": [CITED] * 17}]}),
    "too many packs": (
        "/v1/answers/check",
        {"claims": [{"citations": [{**CITED, "pack_id": str(UUID(int=n))}]} for n in range(17)]},
    ),
    "revision nought": (
        "/v1/answers/check",
        {"claims": [{"citations": [{**CITED, "source_revision": 0}]}]},
    ),
    "a revision as text": (
        "/v1/answers/check",
        {"claims": [{"citations": [{**CITED, "source_revision": "1"}]}]},
    ),
    "a revision beyond the store": (
        "/v1/answers/check",
        {"claims": [{"citations": [{**CITED, "source_revision": 2**31}]}]},
    ),
    "the claim's words": ("/v1/answers/check", {"claims": [{"text": "Refunds take a week."}]}),
    "a flag as text": ("/v1/answers/check", {"claims": [{"flagged": "true"}]}),
    "too much surfaced": ("/v1/answers/check", {**CHECK, "surfaced": [str(PACK)] * 201}),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_of_another_form_is_refused_unasked(guarded: Stage, name: str) -> None:
    """One code and one title for all of them; retrieval hears nothing."""
    path, body = BAD_BODIES[name]
    reply = post(guarded, path, body)
    assert (reply.status, code(reply)) == (400, "bad_body")
    assert guarded.retrieval.asks == []


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"quer": "x"}, "query: missing"),
        ({"query": "x", "kk": 1}, "kk: extra_forbidden"),
        ({"query": ["a word"]}, "query: string_type"),
        (b'{"query": "x", "query": "y"}', "not strict JSON"),
        (b"[]", "not an object"),
        ({"query": "x", "\x00" * 400: 1}, "\x00" * 300),
    ],
)
def test_a_caller_is_told_which_part_of_its_own_body_was_not_accepted(
    guarded: Stage, body: object, detail: str
) -> None:
    """Names of keys and a fixed word, 300 characters at most; no value, and nothing of ours."""
    reply = post(guarded, "/v1/retrieve", body)
    document = json.loads(reply.body)
    assert (reply.status, document["code"], document["detail"]) == (400, "bad_body", detail)
    assert guarded.retrieval.asks == []


@pytest.mark.parametrize(
    ("target", "detail"),
    [
        ("/v1/units?limit=0", "limit: string_pattern_mismatch"),
        ("/v1/units?limit=999", "limit: less_than_equal"),
        ("/v1/units?kind=FAQ", "kind: string_pattern_mismatch"),
        ("/v1/units?label=" + "x" * 301, "label: string_too_long"),
        ("/v1/units?label=%ff", "label: string_unicode"),
        ("/v1/units?text=yes", "text: bool_parsing"),
        ("/v1/units?cursor=a.b", "cursor: string_pattern_mismatch"),
        ("/v1/units?cursor=" + "a" * 100, "cursor: not_ours"),
        ("/v1/units?limit=5&limit=6", "limit: repeated"),
        ("/v1/units?purpose=", "purpose: string_too_short"),
        ("/v1/units?purpose=%00", "purpose: string_pattern_mismatch"),
        ("/v1/scope?offset=secret", "offset: extra_forbidden"),
        ("/v1/scope?&", "query: extra_forbidden"),
        ("/v1/scope?" + "k" * 400, "k" * 300),
        ("/v1/units?access_token=secret", "access_token: credential"),
    ],
)
def test_a_caller_is_told_which_parameter_of_its_own_was_not_accepted(
    guarded: Stage, target: str, detail: str
) -> None:
    """As for a body: a name and a fixed word, 300 characters at most; no value, nothing of ours."""
    reply = get(guarded, target)
    document = json.loads(reply.body)
    assert (reply.status, document["code"], document["detail"]) == (400, "bad_query", detail)
    assert guarded.retrieval.asks == []


def test_a_route_that_takes_a_body_names_the_parameter_that_it_does_not_take(
    guarded: Stage,
) -> None:
    reply = post(guarded, "/v1/retrieve?k=3", {"query": "x"})
    assert json.loads(reply.body)["detail"] == "k: extra_forbidden"


def test_a_word_that_the_policy_has_not_is_a_filter_like_any_other(guarded: Stage) -> None:
    """A refusal would tell everybody which words there are."""
    guarded.retrieval.script = page
    assert get(guarded, "/v1/units?kind=nonsense&lifecycle_stage=nonsense").status == 200
    (ask,) = guarded.retrieval.asks
    assert ask.units is not None
    assert (ask.units.kind, ask.units.lifecycle_stage) == ("nonsense", "nonsense")


def test_no_other_refusal_has_a_detail(guarded: Stage) -> None:
    """Reasons of policy, stores and tokens stay ours."""
    refusals = (
        get(guarded, "/portal/employee/x"),
        guarded.ask("GET", "/v1/units"),
        get(guarded, "/v1/nothing"),
    )
    assert [reply.status for reply in refusals] == [403, 401, 404]
    assert not any("detail" in json.loads(reply.body) for reply in refusals)


@pytest.mark.parametrize("path", ["/v1/answers/check", "/v1/feedback"])
def test_a_huge_body_is_refused_before_it_is_read(guarded: Stage, path: str) -> None:
    reply = post(guarded, path, b'{"claims": "' + b"x" * guarded.limits.body_bytes + b'"}')
    assert (reply.status, code(reply)) == (413, "body_too_large")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=1e2", "limit=+5", "limit=", "limit=5&limit=6", "offset=3",
     "text=yes", "text=True", "kind=FAQ", "kind=faq|law", "cursor=", "cursor=a.b", "cursor=%00",
     "label=" + "x" * 301, "label=%ff", "lifecycle_stage=%27", "audience=", "where=1"],
)  # fmt: skip
def test_a_query_of_another_form_is_refused_unasked(guarded: Stage, query: str) -> None:
    reply = get(guarded, f"/v1/units?{query}")
    assert (reply.status, code(reply)) == (400, "bad_query")
    assert guarded.retrieval.asks == []


def test_a_query_narrows_as_it_says(guarded: Stage) -> None:
    guarded.retrieval.script = page
    get(
        guarded,
        "/v1/units?limit=7&kind=faq&lifecycle_stage=law&label=Ho%C3%A0n+ti%E1%BB%81n&text=true",
    )
    (ask,) = guarded.retrieval.asks
    assert ask.units is not None
    assert ask.units.model_dump() == {
        "limit": 7, "after": None, "kind": "faq", "lifecycle_stage": "law",
        "label": "Hoàn+tiền", "text": True,
    }  # fmt: skip


def test_a_cursor_is_closed_and_says_where_to_go_on(guarded: Stage) -> None:
    """The address in it is readable by nobody, and reaches retrieval as it was."""
    guarded.retrieval.script = lambda ask: page(ask, listed("open"), after="law/open#1")
    first = json.loads(get(guarded, "/v1/units").body)["next_cursor"]
    again = json.loads(get(guarded, "/v1/units").body)["next_cursor"]
    assert first != again
    assert "law" not in first
    get(guarded, f"/v1/units?cursor={first}")
    last = guarded.retrieval.asks[-1]
    assert last.units is not None
    assert last.units.after == "law/open#1"
    for other in (first[:-4], first[::-1], first + "A"):
        assert code(get(guarded, f"/v1/units?cursor={other}")) == "bad_query"
    assert code(get(guarded, f"/v1/units?cursor={first}", "employee")) == "cursor_outdated"


@pytest.mark.parametrize("target", ["/v1/packs", "/v1/packs/", "/v1/packs/a/b", "/v1/packs/%2e"])
def test_only_one_segment_names_a_pack(guarded: Stage, target: str) -> None:
    assert get(guarded, target).status in {400, 404}
    assert guarded.retrieval.asks == []


def test_not_delivered_is_a_refusal_of_its_own(guarded: Stage) -> None:
    guarded.retrieval.script = lambda _: Answer(status=404, code="not_delivered")
    replies = [post(guarded, "/v1/feedback", FEEDBACK), get(guarded, f"/v1/packs/{PACK}")]
    assert [(one.status, code(one)) for one in replies] == [(404, "not_delivered")] * 2
