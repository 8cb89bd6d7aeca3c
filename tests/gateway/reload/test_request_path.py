"""A request that finds the database ahead: it swaps to what is prepared and is placed anew.

Provenance: issue 3, point 6; promise G5 (one revision per request).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gateway.ingress.limits import Limits
from policies.decision import PolicyDigest
from policies.snapshot import Snapshot
from retrieval.contract import Answer
from tests.gateway import answers, test_json_routes
from tests.gateway.stage import Reply, Stage
from tests.gateway.tokens import Issuers

QUERY = b'{"query": "anything"}'
JSON = [("Content-Type", "application/json")]
filtering = test_json_routes.filtering


@pytest.fixture
def moving(believing: Snapshot, issuers: Issuers) -> Iterator[Stage]:
    """A gateway of this test's own: its policy will move."""
    with Stage(believing, issuers, Limits(request_s=5, keep_alive_s=1)) as stage:
        stage.registry.labels = {answers.key("open"): answers.label(stage.snapshot)}
        stage.retrieval.script = lambda ask: answers.answer(ask, ["open"])
        yield stage


def under(snapshot: Snapshot, digit: str) -> Snapshot:
    return replace(snapshot, digest=PolicyDigest(digit * 64))


def retrieve(stage: Stage) -> Reply:
    token = stage.issuers.token("customer")
    return stage.ask("POST", "/v1/retrieve", token=token, headers=JSON, body=QUERY)


def code(reply: Reply) -> str:
    return str(json.loads(reply.body)["code"])


def test_a_prepared_policy_comes_into_force_with_the_request_that_needs_it(moving: Stage) -> None:
    """Nobody waits for a notification; the answer names the digest it was made under."""
    new = under(moving.snapshot, "a")
    moving.holder.prepare(new)
    moving.registry.digests = [new.digest]
    reply = retrieve(moving)
    assert (reply.status, reply.header("x-policy-digest")) == (200, new.digest)
    assert moving.holder.current is new
    assert [ask.subject.policy_digest for ask in moving.retrieval.asks] == [
        moving.snapshot.digest,
        new.digest,
    ]


def test_retrieval_may_be_the_first_to_notice(moving: Stage) -> None:
    """Its 409 names no digest: the registry is asked for it."""
    new = under(moving.snapshot, "a")
    moving.holder.prepare(new)
    moving.registry.digests = [new.digest]
    moving.retrieval.script = lambda ask: (
        answers.answer(ask, ["open"])
        if ask.subject.policy_digest == new.digest
        else Answer(status=409, code="policy_mismatch")
    )
    assert retrieve(moving).status == 200
    assert moving.holder.current is new


def test_a_scope_is_told_under_the_policy_that_came_into_force(moving: Stage) -> None:
    new = under(moving.snapshot, "a")
    moving.holder.prepare(new)
    moving.registry.digests = [new.digest]
    reply = moving.ask("GET", "/v1/scope", token=moving.issuers.token("customer"))
    assert json.loads(reply.body)["policy_digest"] == new.digest


def test_several_changes_within_one_request_are_followed(moving: Stage) -> None:
    """Each placing after the first needs a change; four are the bound."""
    first, second = under(moving.snapshot, "a"), under(moving.snapshot, "b")
    moving.holder.prepare(first)
    moving.holder.prepare(second)
    moving.registry.digests = [first.digest, second.digest]
    reply = retrieve(moving)
    assert (reply.status, reply.header("x-policy-digest")) == (200, second.digest)


def test_a_policy_that_nobody_prepared_is_not_answered_under(moving: Stage) -> None:
    """Fail closed, and what was in force stays what is held."""
    moving.registry.digests = ["a" * 64]
    reply = retrieve(moving)
    assert (reply.status, code(reply)) == (503, "policy_changed")
    assert moving.holder.current is moving.snapshot


def test_json_is_filtered_under_the_policy_in_force_and_asked_for_once(filtering: Stage) -> None:
    """The upstream acted already: its answer is filtered anew, the request is not sent again."""
    filtering.reset()
    new = under(filtering.snapshot, "a")
    filtering.holder.prepare(new)
    body = json.dumps({"hits": [test_json_routes.hit("a")]}).encode()
    filtering.upstream.answer = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    ) + body
    filtering.registry.digests = [new.digest]
    reply = filtering.ask("GET", "/portal/customer/x", token=filtering.issuers.token("customer"))
    assert (reply.status, reply.header("x-policy-digest")) == (200, new.digest)
    assert len(filtering.upstream.requests) == 1
    filtering.registry.digests = ["b" * 64]
    reply = filtering.ask("GET", "/portal/customer/x", token=filtering.issuers.token("customer"))
    assert (reply.status, code(reply)) == (503, "policy_changed")
