"""The body of a retrieve is read strictly: plain types, known names, each name once."""

from __future__ import annotations

import pytest

from gateway.errors import Refusal
from gateway.routes.wishes import of_body
from retrieval.contract import RetrieveRequest

JSON = ((b"content-type", b"application/json"),)


def test_turns_of_a_conversation_are_read() -> None:
    """Oldest first, as they were sent."""
    body = b'{"query": "and when?", "turns": ["who sang it", "where"]}'
    wish = of_body(JSON, body, "retrieve")
    assert isinstance(wish.request, RetrieveRequest)
    assert wish.request.turns == ("who sang it", "where")


@pytest.mark.parametrize(
    "body",
    [
        b'{"query": "a", "turns": "b"}',
        b'{"query": "a", "turns": [""]}',
        b'{"query": "a", "turns": [1]}',
        b'{"query": "a", "turns": null}',
        b'{"query": "a", "turns": [' + b",".join([b'"b"'] * 21) + b"]}",
        b'{"query": "a", "query": "b"}',
        b'{"query": "a", "k": "3"}',
        b'{"query": "a", "k": 3.0}',
        b'{"query": 1}',
    ],
)
def test_anything_else_is_refused(body: bytes) -> None:
    """Never coerced."""
    with pytest.raises(Refusal, match="bad_body"):
        of_body(JSON, body, "retrieve")
