"""What the guard does not pass on is called back, so that nobody can cite it as delivered."""

from __future__ import annotations

from uuid import UUID

import pytest

from retrieval.contract import Answer, Ask
from tests.gateway import answers
from tests.gateway.stage import Stage
from tests.gateway.test_guard import LEAK, code, guarded, refused, retrieve

__all__ = ["guarded"]
FIRST, SECOND = UUID(int=1), UUID(int=2)


def numbered(stage: Stage, *contents: list[str]) -> None:
    """The answers hold these units in turn, whatever is excluded, and have the numbers 1, 2, …"""

    def script(ask: Ask) -> Answer:
        turn = len(stage.retrieval.asks)
        asked = ask.model_copy(update={"exclude": ()})
        made = answers.answer(asked, contents[min(turn, len(contents)) - 1])
        return made.model_copy(update={"answer_id": UUID(int=turn)})

    stage.retrieval.script = script


def test_an_answer_that_leaves_is_not_called_back(guarded: Stage) -> None:
    numbered(guarded, ["open"])
    assert retrieve(guarded).status == 200
    assert guarded.retrieval.withheld == []


def test_an_answer_that_was_made_again_is_called_back_and_the_one_that_leaves_is_not(
    guarded: Stage,
) -> None:
    numbered(guarded, ["open", LEAK], ["open"])
    assert retrieve(guarded).status == 200
    assert guarded.retrieval.withheld == [FIRST]


def test_the_last_refusal_is_called_back_like_the_first(guarded: Stage) -> None:
    numbered(guarded, [LEAK])
    assert retrieve(guarded).status == 503
    assert sorted(guarded.retrieval.withheld) == [FIRST, SECOND]


def test_an_answer_that_was_in_doubt_is_called_back_though_nothing_is_excluded(
    guarded: Stage,
) -> None:
    """Asked again for a unit that the index knew earlier: the ledger cannot tell by ``exclude``."""
    guarded.registry.labels[answers.key("fresh")] = answers.label(guarded.snapshot)

    def script(ask: Ask) -> Answer:
        turn = len(guarded.retrieval.asks)
        late = [refused("fresh")] if turn == 1 else []
        made = answers.answer(ask, ["open"], late)
        return made.model_copy(update={"answer_id": UUID(int=turn)})

    guarded.retrieval.script = script
    assert retrieve(guarded).status == 200
    assert [ask.exclude for ask in guarded.retrieval.asks] == [(), ()]
    assert guarded.retrieval.withheld == [FIRST]


def test_an_answer_under_a_policy_that_moved_is_called_back(guarded: Stage) -> None:
    guarded.registry.digests = ["0" * 64, guarded.snapshot.digest]
    numbered(guarded, ["open"])
    assert retrieve(guarded).status == 200
    assert guarded.retrieval.withheld == [FIRST]


@pytest.mark.parametrize("fault", ["registry", "journal"])
def test_what_a_store_keeps_from_leaving_is_called_back(guarded: Stage, fault: str) -> None:
    guarded.registry.down = fault == "registry"
    guarded.journal.full = fault == "journal"
    numbered(guarded, ["open", LEAK], ["open"])
    assert code(retrieve(guarded)).endswith("_unavailable")
    asked = len(guarded.retrieval.asks)
    assert sorted(guarded.retrieval.withheld) == [FIRST, SECOND][:asked]


def test_an_answer_of_another_scope_is_called_back(guarded: Stage) -> None:
    def script(ask: Ask) -> Answer:
        other = ask.subject.model_copy(update={"profiles": ("employee",)})
        return answers.answer(ask.model_copy(update={"subject": other}), ["open"])

    guarded.retrieval.script = script
    assert retrieve(guarded).status == 503
    assert guarded.retrieval.withheld == [answers.ANSWER_ID]


def test_nothing_leaves_when_what_was_withheld_cannot_be_called_back(guarded: Stage) -> None:
    """Else the caller would hold one answer and have two in the ledger."""
    guarded.retrieval.deaf = True
    numbered(guarded, ["open", LEAK], ["open"])
    assert code(retrieve(guarded)) == "retrieval_unavailable"
    assert set(guarded.retrieval.withheld) == {FIRST, SECOND}
    assert [event.unit_ids for event in guarded.journal.events] == [(answers.unit_id(LEAK),)]


def test_what_stopped_an_answer_is_told_also_when_it_cannot_be_called_back(guarded: Stage) -> None:
    guarded.retrieval.deaf = True
    guarded.journal.full = True
    numbered(guarded, ["open", LEAK], ["open"])
    assert code(retrieve(guarded)) == "journal_unavailable"


@pytest.mark.parametrize("answer_id", [None, answers.ANSWER_ID])
def test_an_answer_and_its_number_come_together_or_not_at_all(
    guarded: Stage, answer_id: UUID | None
) -> None:
    """What nobody wrote down could not be called back."""

    def script(ask: Ask) -> Answer:
        made = answers.answer(ask, ["open"])
        response = None if answer_id else made.response
        status = 404 if answer_id else 200
        return Answer(status=status, code="", response=response, answer_id=answer_id)

    guarded.retrieval.script = script
    assert code(retrieve(guarded)) == "retrieval_unavailable"
