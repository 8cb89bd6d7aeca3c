"""A permitted id must come with its own address, revision and text.

Provenance: promise G3 (the guard believes nothing that retrieval says); seed 4.13 (a citation is
an address and a revision).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.egress.registry import Content
from gateway.journal.event import EventAction, EventKind
from retrieval.context_pack import LinkRef, ReadingStep, SuspectLink, UnitRef
from retrieval.contract import Answer, Ask
from tests.gateway import answers
from tests.gateway.stage import Reply, Stage
from tests.gateway.test_guard import code, retrieve

SECRET = "what another unit says"


@pytest.fixture
def guarded(stage: Stage) -> Stage:
    """Two units that everybody may see, so that only their contents can be at fault."""
    stage.registry.labels = {
        answers.key(name): answers.label(stage.snapshot) for name in ("open", "fresh")
    }
    return stage


def shown(ask: Ask, **changes: Any) -> Answer:
    """An answer with both units, the one called `fresh` changed; it honours `exclude`."""
    fresh = answers.unit("fresh").model_copy(update=changes)
    units = tuple(u for u in (answers.unit("open"), fresh) if u.unit_id not in ask.exclude)
    revisions = {one.canonical_address: one.revision for one in units}
    return answers.answer(ask, [], canonical_units=units, source_revisions=revisions)


def units_in(reply: Reply) -> list[str]:
    (pack,) = json.loads(reply.body)["packs"]
    return [unit["canonical_address"] for unit in pack["canonical_units"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"text": SECRET},
        {"text": ""},
        {"text": "tex"},
        {"text": "text "},
        {"canonical_address": "law/secret#1"},
        {"canonical_address": "law/open#1"},
        {"revision": 2},
    ],
    ids=["text", "no text", "cut text", "longer text", "address", "another's address", "revision"],
)
def test_content_that_is_not_the_units_own_is_a_leak(
    guarded: Stage, changes: dict[str, Any]
) -> None:
    """The id may be seen, its words are not its own: withheld, journaled, asked again without."""
    guarded.retrieval.script = lambda ask: shown(ask, **changes)
    reply = retrieve(guarded)
    assert units_in(reply) == ["law/open#1"]
    assert SECRET.encode() not in reply.body
    (event,) = guarded.journal.events
    assert (event.kind, event.layer) == (EventKind.WRONG_AUDIENCE_RESULT, "response")
    assert (event.action, event.unit_ids) == (EventAction.WITHHELD, (answers.unit_id("fresh"),))


def test_single_unit_is_compared_as_well(guarded: Stage) -> None:
    """`GET /v1/units/...`: false content is what a hidden unit is, absent."""

    def script(ask: Ask) -> Answer:
        if ask.exclude:
            return Answer(status=404, code="not_found")
        found = answers.answer(ask, ["open"])
        assert found.unit is not None
        false = found.unit.unit.model_copy(update={"text": SECRET})
        return found.model_copy(update={"unit": found.unit.model_copy(update={"unit": false})})

    guarded.retrieval.script = script
    token = guarded.issuers.token("customer")
    reply = guarded.ask("GET", "/v1/units/law/open%231", token=token)
    assert (reply.status, code(reply)) == (404, "not_found")
    assert len(guarded.journal.events) == 1


def _edge(address: str) -> dict[str, Any]:
    edge = LinkRef(
        relation="implements",
        from_address="law/open#1",
        to_address=address,
        to_title="t",
        from_unit_id=answers.unit_id("open"),
        to_unit_id=answers.unit_id("fresh"),
        confidence=1,
    )
    return {"related_design_code_links": (edge,)}


def _suspect(address: str) -> dict[str, Any]:
    link = SuspectLink(
        unit_id=answers.unit_id("fresh"),
        canonical_address=address,
        reason="wrong_link",
        confidence=0.1,
    )
    return {"suspect_links": (link,)}


@pytest.mark.parametrize("place", [_edge, _suspect])
def test_address_of_a_link_or_suspect_is_its_own(
    guarded: Stage, place: Callable[[str], dict[str, Any]]
) -> None:
    """An address alone tells something too: of these units nothing else is shown."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], **place("law/fresh#1"))
    assert retrieve(guarded).status == 200
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], **place("law/secret#1"))
    reply = retrieve(guarded)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")
    assert guarded.journal.events[0].unit_ids == (answers.unit_id("fresh"),)


@pytest.mark.parametrize("address", ["law/fresh#1", "law/secret#1"])
@pytest.mark.parametrize("revision", [1, 7])
def test_citation_names_a_text_that_is_there(guarded: Stage, address: str, revision: int) -> None:
    """A reading step to a text that is only linked to, or to another revision, is malformed."""
    step = ReadingStep(position=1, canonical_address=address, revision=revision, reason="r")
    changes = {**_edge("law/fresh#1"), "recommended_reading_order": (step,)}
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"], **changes)
    assert code(retrieve(guarded)) == "retrieval_unavailable"
    step = ReadingStep(position=1, canonical_address="law/open#1", revision=revision, reason="r")
    guarded.retrieval.script = lambda ask: answers.answer(
        ask, ["open"], recommended_reading_order=(step,)
    )
    assert retrieve(guarded).status == (200 if revision == 1 else 503)


def _updated(stage: Stage, text: str) -> UnitRef:
    """The unit `fresh`, updated in the truth and as retrieval will show it from then on."""
    now = answers.unit("fresh", text=text).model_copy(update={"revision": 2})
    digest = hashlib.sha256(text.encode()).hexdigest()
    stage.registry.contents[now.unit_id] = Content(now.canonical_address, 2, digest)
    return now


def test_unit_that_was_updated_in_between_is_asked_for_again(guarded: Stage) -> None:
    """The look-up is younger than retrieval's reading: no event, and the new text is served."""
    now = _updated(guarded, "new")

    def script(ask: Ask) -> Answer:
        first = len(guarded.retrieval.asks) == 1
        return shown(ask) if first else shown(ask, revision=2, text=now.text)

    guarded.retrieval.script = script
    reply = retrieve(guarded)
    assert json.loads(reply.body)["packs"][0]["canonical_units"][1]["text"] == "new"
    assert [ask.exclude for ask in guarded.retrieval.asks] == [(), ()]
    assert guarded.journal.events == []


def test_older_revision_shown_twice_does_not_leave(guarded: Stage) -> None:
    """Not a leak but not the truth: a warning for operators, a refusal for the caller."""
    _updated(guarded, "new")
    guarded.retrieval.script = shown
    reply = retrieve(guarded)
    assert (reply.status, code(reply)) == (503, "retrieval_unavailable")
    (event,) = guarded.journal.events
    assert (event.kind, event.action) == (EventKind.STALE_INDEX, EventAction.REFUSED)
    assert event.unit_ids == (answers.unit_id("fresh"),)


def test_unit_without_a_current_text_fits_no_text(guarded: Stage) -> None:
    """No hash is no match, also for an empty text."""
    fresh = answers.unit_id("fresh")
    guarded.registry.contents[fresh] = Content("law/fresh#1", 1, "")
    guarded.retrieval.script = lambda ask: shown(ask, text="")
    assert units_in(retrieve(guarded)) == ["law/open#1"]
    assert guarded.journal.events[0].unit_ids == (fresh,)
