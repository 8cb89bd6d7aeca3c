"""The egress guard against a retrieval that is wrong, stale, broken or hostile.

Provenance: architecture section 6 ("What an event is"), promises G3, G4, G5; issue parts 4, 5.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import pytest

from gateway.journal.event import EventAction, EventKind
from retrieval.context_pack import Gap, LinkRef, ReadingStep, SuspectLink
from retrieval.contract import Answer, Ask, Discrepancy
from retrieval.stores.rows import Layer
from tests.gateway import answers
from tests.gateway.stage import Reply, Stage

QUERY = json.dumps({"query": "how do I return a product"}).encode()
JSON = [("Content-Type", "application/json")]
LEAK = "leak"


@pytest.fixture
def guarded(stage: Stage) -> Stage:
    """Two units: `open` is everybody's, `leak` is internal."""
    stage.registry.labels = {
        answers.key("open"): answers.label(stage.snapshot),
        answers.key(LEAK): answers.label(stage.snapshot, visibility="internal"),
    }
    return stage


def retrieve(stage: Stage, audience: str = "customer", body: bytes = QUERY) -> Reply:
    token = stage.issuers.token(audience)
    return stage.ask("POST", "/v1/retrieve", token=token, headers=JSON, body=body)


def code(reply: Reply) -> str:
    return str(json.loads(reply.body)["code"])


def test_permitted_answer_leaves_without_its_envelope(guarded: Stage) -> None:
    """Only public models leave: the governed list and discrepancies end at the gateway."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    reply = retrieve(guarded)
    document = json.loads(reply.body)
    assert reply.status == 200
    assert set(document) == {"mode", "packs", "degraded"}
    assert document["packs"][0]["canonical_units"][0]["unit_id"] == str(answers.unit_id("open"))
    assert guarded.journal.events == []
    assert reply.header("cache-control") == "private, no-store"
    assert reply.header("vary") == "Authorization, Cookie"
    assert reply.header("x-policy-digest") == guarded.snapshot.digest


def test_denied_unit_never_leaves_and_is_an_event(guarded: Stage) -> None:
    """The planted leak: withheld, journaled with route, layer and digest, asked again without."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open", LEAK])
    reply = retrieve(guarded)
    assert reply.status == 200
    assert str(answers.unit_id(LEAK)).encode() not in reply.body
    assert b"title of leak" not in reply.body
    assert [ask.exclude for ask in guarded.retrieval.asks] == [(), (answers.unit_id(LEAK),)]
    (event,) = guarded.journal.events
    assert event.kind is EventKind.WRONG_AUDIENCE_RESULT
    assert event.action is EventAction.WITHHELD
    assert (event.unit_ids, event.unit_count) == ((answers.unit_id(LEAK),), 1)
    assert event.class_ids == (guarded.registry.labels[answers.key(LEAK)].class_id,)
    assert (event.route, event.layer, event.profile) == ("retrieve", "response", "customer")
    assert event.request_id == reply.header("x-request-id")
    assert event.policy_digest == guarded.snapshot.digest
    assert guarded.records.all[-1].event == event


def test_answer_after_a_leak_equals_the_one_without_the_unit(guarded: Stage) -> None:
    """The caller gets the response that it would get had the unit never existed."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    honest = retrieve(guarded)
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open", LEAK])
    assert retrieve(guarded).body == honest.body


def test_stubborn_retrieval_is_refused_like_any_fault(guarded: Stage) -> None:
    """Denied again after being asked again: 503, the event says refused, nothing leaves."""
    guarded.retrieval.script = lambda ask: answers.answer(
        ask.model_copy(update={"exclude": ()}), [LEAK]
    )
    reply = retrieve(guarded)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")
    assert str(answers.unit_id(LEAK)).encode() not in reply.body
    (event,) = guarded.journal.events
    assert event.action is EventAction.REFUSED


def test_nothing_leaves_when_the_journal_cannot_write(guarded: Stage) -> None:
    """The row is durable before the response leaves, else 503 and nothing leaves."""
    guarded.journal.full = True
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open", LEAK])
    reply = retrieve(guarded)
    assert (reply.status, code(reply)) == (503, "journal_unavailable")
    assert b"packs" not in reply.body


def test_nothing_leaves_when_labels_cannot_be_read(guarded: Stage) -> None:
    """No second check, no answer."""
    guarded.registry.down = True
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    assert code(retrieve(guarded)) == "retrieval_unavailable"


def _edge(ask: Ask) -> Answer:
    edge = LinkRef(
        relation="implements",
        from_address="law/open#1",
        to_address="law/leak#1",
        to_title="t",
        from_unit_id=answers.unit_id("open"),
        to_unit_id=answers.unit_id(LEAK),
        confidence=1,
    )
    return answers.answer(ask, ["open"], related_design_code_links=(edge,))


def _gap(ask: Ask) -> Answer:
    gap = Gap(
        artifact_id=answers.unit_id(LEAK), lifecycle_stage="report", kind="incident", title="t"
    )
    return answers.answer(ask, ["open"], known_gaps=(gap,))


def _suspect(ask: Ask) -> Answer:
    link = SuspectLink(
        unit_id=answers.unit_id(LEAK),
        canonical_address="law/leak#1",
        reason="wrong_link",
        confidence=0.1,
    )
    return answers.answer(ask, ["open"], suspect_links=(link,))


def _thread(ask: Ask) -> Answer:
    return answers.answer(ask, ["open"], thread_id=answers.unit_id(LEAK), thread_title="t")


def _report(ask: Ask) -> Answer:
    return answers.answer(ask, ["open"], latest_reports=(answers.unit(LEAK),))


@pytest.mark.parametrize("script", [_edge, _gap, _suspect, _thread, _report])
def test_every_place_of_a_pack_is_inspected(
    guarded: Stage, script: Callable[[Ask], Answer]
) -> None:
    """The far end of an edge, a gap, a suspect link, a thread, a report: one verdict for all.

    Retrieval did not declare these ids; the guard's own walk finds them.
    """
    guarded.retrieval.script = script
    reply = retrieve(guarded)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")
    (event,) = guarded.journal.events
    assert event.unit_ids == (answers.unit_id(LEAK),)


def test_declared_but_unseen_id_is_inspected_too(guarded: Stage) -> None:
    """What retrieval says it put in counts, also where the walk finds nothing."""

    def script(ask: Ask) -> Answer:
        return answers.answer(ask, ["open"]).model_copy(
            update={"governed": answers.answer(ask, [LEAK]).governed}
        )

    guarded.retrieval.script = script
    assert retrieve(guarded).status == 200
    assert guarded.journal.events[0].unit_ids == (answers.unit_id(LEAK),)


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_that_names_a_denied_unit_is_an_event(status: int, guarded: Stage) -> None:
    """What is said to have been touched counts, although nothing is shown."""
    guarded.retrieval.script = lambda ask: Answer(
        status=status, code="index_unavailable", governed=answers.answer(ask, [LEAK]).governed
    )
    assert retrieve(guarded).status == 503
    (event,) = guarded.journal.events
    assert event.unit_ids == (answers.unit_id(LEAK),)
    assert event.action is EventAction.REFUSED


@pytest.mark.parametrize(
    "change",
    [
        {"source_revisions": {"law/leak#1": 1}},
        {
            "recommended_reading_order": (
                ReadingStep(position=1, canonical_address="law/leak#1", revision=1, reason="r"),
            )
        },
    ],
)
def test_address_without_its_unit_is_refused(guarded: Stage, change: dict[str, object]) -> None:
    """An address names a unit; one that nobody looked up does not leave."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], **change)
    assert code(retrieve(guarded)) == "retrieval_unavailable"


def test_unit_that_does_not_exist_any_more_is_denied(guarded: Stage) -> None:
    """Deleted between hydrate and inspect: no label, no exit; class -1 in the event."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open", "gone"])
    assert retrieve(guarded).status == 200
    assert guarded.journal.events[0].class_ids == (-1,)


@pytest.mark.parametrize(
    ("tenant", "jurisdiction"), [("other", "*"), ("*", "vn"), ("", "*"), ("*", ""), ("ACME", "*")]
)
def test_foreign_compartment_is_denied(guarded: Stage, tenant: str, jurisdiction: str) -> None:
    """Own and shared compartments only; an empty one is nobody's."""
    guarded.registry.labels[answers.key(LEAK)] = answers.label(
        guarded.snapshot, tenant, jurisdiction
    )
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open", LEAK])
    assert str(answers.unit_id(LEAK)).encode() not in retrieve(guarded).body
    assert len(guarded.journal.events) == 1


def test_consent_is_read_again_at_egress(guarded: Stage) -> None:
    """High risk leaves with a live consent of this subject and purpose, and with no other."""
    guarded.registry.labels[answers.key("risky")] = answers.label(
        guarded.snapshot, risk_class="high"
    )
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["risky"])
    body = json.dumps({"query": "q", "purpose": "support"}).encode()
    assert retrieve(guarded, body=body).status == 200
    assert len(guarded.journal.events) == 1
    subject = guarded.retrieval.asks[0].subject.subject_id
    guarded.registry.consents = {(subject, "support", answers.unit_id("risky"))}
    reply = retrieve(guarded, body=body)
    assert str(answers.unit_id("risky")).encode() in reply.body
    assert str(answers.unit_id("risky")).encode() not in retrieve(guarded).body


def found(layer: Layer, *, pending: bool) -> Discrepancy:
    return Discrepancy(unit_id=uuid4(), class_id=7, layer=layer, pending=pending)


def test_discrepancies_of_hydration_become_one_event(guarded: Stage) -> None:
    """Pending = a late index, a warning; anything else is a wrong-audience result."""
    late = found("vector_index", pending=True)
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], [late])
    assert retrieve(guarded).status == 200
    assert [event.kind for event in guarded.journal.events] == [EventKind.STALE_INDEX]
    wrong = [found("vector_index", pending=False), found("lexical_index", pending=False)]
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], [late, *wrong])
    assert retrieve(guarded).status == 200
    event = guarded.journal.events[1]
    assert event.kind is EventKind.WRONG_AUDIENCE_RESULT
    assert (event.layer, event.unit_count) == ("lexical_index+vector_index", 2)
    assert event.class_ids == (7,)


def refused(name: str) -> Discrepancy:
    """What retrieval says of a unit that an index offered and its truth refused."""
    return Discrepancy(
        unit_id=answers.unit_id(name), class_id=-1, layer="vector_index", pending=False
    )


def test_unit_that_an_open_reader_cannot_see_yet_is_no_event(guarded: Stage) -> None:
    """The index is fed after the commit, so it may be ahead of a reader: asked again, no row."""
    fresh = answers.key("fresh")
    guarded.registry.labels[fresh] = answers.label(guarded.snapshot)

    def script(ask: Ask) -> Answer:
        if len(guarded.retrieval.asks) == 1:
            return answers.answer(ask, ["open"], [refused("fresh")])
        return answers.answer(ask, ["open", "fresh"])

    guarded.retrieval.script = script
    reply = retrieve(guarded)
    assert reply.status == 200
    assert str(answers.unit_id("fresh")).encode() in reply.body
    assert [ask.exclude for ask in guarded.retrieval.asks] == [(), ()]
    assert guarded.journal.events == []


@pytest.mark.parametrize(
    ("layer", "pending", "kind"),
    [
        ("vector_index", True, EventKind.STALE_INDEX),
        ("hydrate", False, EventKind.WRONG_AUDIENCE_RESULT),
    ],
)
def test_only_what_an_index_may_know_earlier_is_doubted(
    layer: Layer, pending: bool, kind: EventKind, guarded: Stage
) -> None:
    """A known lag, and a layer that is never ahead: the event stands although labels permit."""
    said = Discrepancy(unit_id=answers.unit_id("open"), class_id=7, layer=layer, pending=pending)
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], [said])
    assert retrieve(guarded).status == 200
    assert len(guarded.retrieval.asks) == 1
    (event,) = guarded.journal.events
    assert (event.kind, event.layer, event.class_ids) == (kind, layer, (7,))


def test_truth_that_goes_on_refusing_what_the_labels_permit_is_a_fault(guarded: Stage) -> None:
    """The stores contradict each other: an event, and no answer that lacks units in silence."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, [], [refused("open")])
    reply = retrieve(guarded)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")
    (event,) = guarded.journal.events
    assert (event.action, event.unit_ids) == (EventAction.REFUSED, (answers.unit_id("open"),))


def test_a_doubt_hides_no_leak(guarded: Stage) -> None:
    """One unit in doubt, another one relabelled in the index: the event names the other only."""
    guarded.registry.labels[answers.key("fresh")] = answers.label(guarded.snapshot)

    def script(ask: Ask) -> Answer:
        first = [refused("fresh")] if len(guarded.retrieval.asks) == 1 else []
        return answers.answer(ask, ["open"], [*first, refused(LEAK)])

    guarded.retrieval.script = script
    assert retrieve(guarded).status == 200
    (event,) = guarded.journal.events
    assert event.unit_ids == (answers.unit_id(LEAK),)
    assert (event.layer, event.action) == ("vector_index", EventAction.WITHHELD)


def test_discrepancy_behind_a_404_is_journaled(guarded: Stage) -> None:
    """Nothing left to show is no reason to lose the event."""
    guarded.retrieval.script = lambda _: Answer(
        status=404, code="not_found", discrepancies=(found("hydrate", pending=False),)
    )
    assert retrieve(guarded).status == 404
    assert guarded.journal.events[0].action is EventAction.WITHHELD


def test_event_names_fifty_units_and_counts_all(guarded: Stage) -> None:
    """One row per request, however much leaked."""
    many = [found("vector_index", pending=False) for _ in range(120)]
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], many)
    retrieve(guarded)
    (event,) = guarded.journal.events
    assert (len(event.unit_ids), event.unit_count) == (50, 120)


def test_hidden_and_absent_are_the_same_bytes(guarded: Stage) -> None:
    """Issue: byte for byte, request id normalised, headers included."""
    guarded.retrieval.script = lambda _: Answer(status=404, code="hidden")
    token = guarded.issuers.token("customer")
    hidden = guarded.ask("GET", "/v1/units/law/leak%231", token=token)
    guarded.retrieval.script = lambda _: Answer(status=404, code="absent")
    absent = guarded.ask("GET", "/v1/units/law/nothing%231", token=token)
    unrouted = guarded.ask("GET", "/nothing", token=token)
    shown = [
        (
            reply.status,
            reply.body.replace((reply.header("x-request-id") or "").encode(), b""),
            [one for one in reply.headers if one[0] not in {"x-request-id", "date"}],
        )
        for reply in (hidden, absent, unrouted)
    ]
    assert shown[0] == shown[1] == shown[2]
    assert hidden.status == 404


def test_an_unexpected_fault_is_logged_without_its_words(
    guarded: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of an exception may quote a request or a unit: where it was raised is enough."""

    words = "the words" + " of a unit"

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(guarded.registry, "look_up", broken)
    assert retrieve(guarded).status == 500
    assert "RuntimeError" in caplog.text
    assert "in broken" in caplog.text
    assert words not in caplog.text


@pytest.mark.parametrize(
    "script",
    [
        lambda _: b"not json",
        lambda _: b'{"status": 200}',
        lambda _: b'{"status": 200, "response": {"mode": "fallback", "packs": [{}]}}',
        lambda _: b'{"status": 200, "extra": 1}',
        lambda _: Answer(status=500, code="internal"),
        lambda ask: answers.answer(ask.model_copy(update={"operation": "unit"}), ["open"]),
        lambda ask: Answer(status=404, response=answers.answer(ask, ["open"]).response),
        lambda ask: answers.answer(
            ask.model_copy(
                update={"subject": ask.subject.model_copy(update={"policy_digest": "f" * 64})}
            ),
            ["open"],
        ),
        lambda ask: answers.answer(
            ask.model_copy(
                update={"subject": ask.subject.model_copy(update={"profiles": ("employee",)})}
            ),
            ["open"],
        ),
    ],
    ids=["text", "empty", "pack", "extra", "500", "shape", "404 body", "digest", "profile"],
)
def test_answer_of_another_shape_is_refused(
    guarded: Stage, script: Callable[[Ask], Answer | bytes]
) -> None:
    """F14: an unknown shape on a guarded route is a block, never passed through."""
    guarded.retrieval.script = script
    reply = retrieve(guarded)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")


def test_missing_index_has_its_own_code(guarded: Stage) -> None:
    """Issue part 3: what needs vectors is 503 index_unavailable."""
    guarded.retrieval.script = lambda _: Answer(status=503, code="index_unavailable")
    assert code(retrieve(guarded)) == "index_unavailable"


def test_policy_that_moved_once_is_placed_anew(guarded: Stage) -> None:
    """G5: the digest pinned at place must be the one in force at inspect; one more try."""
    guarded.registry.digests = ["0" * 64, guarded.snapshot.digest]
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    assert retrieve(guarded).status == 200
    assert len(guarded.retrieval.asks) == 2


def test_policy_that_moves_twice_is_refused(guarded: Stage) -> None:
    """Never an answer under a digest that the database does not enforce."""
    guarded.registry.digests = ["0" * 64]
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    assert code(retrieve(guarded)) == "policy_changed"
    guarded.retrieval.script = lambda _: Answer(status=409, code="policy_mismatch")
    assert code(retrieve(guarded)) == "policy_changed"


def test_scope_is_told_under_the_policy_in_force_only(guarded: Stage) -> None:
    """The document of a policy that is not enforced, or cannot be checked, would be a lie."""
    token = guarded.issuers.token("customer")
    guarded.registry.digests = ["0" * 64]
    assert code(guarded.ask("GET", "/v1/scope", token=token)) == "policy_changed"
    guarded.registry.down = True
    assert code(guarded.ask("GET", "/v1/scope", token=token)) == "retrieval_unavailable"
