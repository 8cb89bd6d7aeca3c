"""What a guarded route takes for a question, and what it takes for an address.

Provenance: issue part 4; attack log rows F8 to F13.
"""

from __future__ import annotations

import json

import pytest

from tests.gateway import answers
from tests.gateway.stage import Stage
from tests.gateway.test_guard import JSON, QUERY, code, guarded, retrieve

__all__ = ["guarded"]


@pytest.mark.parametrize("path", ["/v1/units/{}", "/v1/threads/{}/pack"])
def test_an_address_that_is_too_long_for_one_is_absent(path: str, guarded: Stage) -> None:
    """No object has it, so it is the 404 of every other absent address, not a fault."""
    token = guarded.issuers.token("customer")
    replies = [guarded.ask("GET", path.format("a" * n), token=token) for n in (300, 301, 4_000)]
    assert {(reply.status, code(reply)) for reply in replies} == {(404, "not_found")}


def test_address_reaches_retrieval_with_its_hash(guarded: Stage) -> None:
    """`#` travels as %23, the one escape there is, and is decoded once."""
    guarded.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    token = guarded.issuers.token("customer")
    reply = guarded.ask("GET", "/v1/units/law/open%231", token=token)
    assert reply.status == 200
    assert guarded.retrieval.asks[0].reference == "law/open#1"
    assert json.loads(reply.body)["unit"]["canonical_address"] == "law/open#1"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"query": "q", "query": "r"}', 400),
        (b'{"query": ""}', 400),
        (b'{"query": 1}', 400),
        (b'{"query": "q", "k": true}', 400),
        (b'{"query": "q", "k": NaN}', 400),
        (b'{"query": "q", "tenants": ["other"]}', 400),
        (b'{"query": "q", "purpose": "nonsense"}', 400),
        (b'{"query": "\\ud800"}', 400),
        (b'\xef\xbb\xbf{"query": "q"}', 400),
        (b'{"query": "q", "a": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
        (b'{"query": "' + b"q" * 100_000 + b'"}', 413),
    ],
)
def test_body_that_is_not_exactly_a_question_is_refused(
    guarded: Stage, body: bytes, status: int
) -> None:
    """F8-F13 for requests: one reading, known fields, bounded size; retrieval hears nothing."""
    assert retrieve(guarded, body=body).status == status
    assert guarded.retrieval.asks == []


def test_content_type_must_be_json(guarded: Stage) -> None:
    """No guessing of bodies."""
    token = guarded.issuers.token("customer")
    for headers in ([], [("Content-Type", "text/plain")], [*JSON, ("Content-Encoding", "gzip")]):
        reply = guarded.ask("POST", "/v1/retrieve", token=token, headers=headers, body=QUERY)
        assert reply.status == 415


@pytest.mark.parametrize("query", ["x=1", "audience=", "audience=a&audience=b", "purpose=%00"])
def test_query_of_a_guarded_route_is_a_closed_list(guarded: Stage, query: str) -> None:
    """Unknown, empty, doubled, malformed: refused."""
    reply = guarded.ask("GET", f"/v1/scope?{query}", token=guarded.issuers.token("customer"))
    assert (reply.status, code(reply)) == (400, "bad_query")
