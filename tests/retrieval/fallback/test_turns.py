"""A question of a conversation is searched for with what its asker said before it, boundedly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retrieval.contract import RetrieveRequest
from retrieval.fallback.turns import whole_question

LINE = st.text("abc ", min_size=1, max_size=4_000)


def test_turns_stand_before_the_question_in_the_order_they_were_said() -> None:
    """The vector model reads them as one text."""
    request = RetrieveRequest(query="and when?", turns=("who sang it", "which album"))
    assert whole_question(request) == "who sang it which album and when?"


@given(LINE, st.lists(LINE, max_size=20))
def test_no_conversation_costs_more_than_one_long_question(query: str, turns: list[str]) -> None:
    """The question itself is always whole; of the turns the latest are kept."""
    text = whole_question(RetrieveRequest(query=query, turns=tuple(turns)))
    assert len(text) <= 4_000
    assert text.endswith(query)
    assert " ".join([*turns, query]).endswith(text)
