"""Why an operator was refused: the same words as on the first listener.

The plane alone, without a listener: what it leaves for the logs is what is looked at.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.authn.bearer import Authenticator
from gateway.decisions.reader import read_records
from gateway.decisions.writing import values_of
from gateway.holder import SnapshotHolder
from gateway.ingress.limits import Limits
from gateway.reasons import Why
from gateway.surfaces.admin.asked import Answered, Asked
from gateway.surfaces.admin.plane import AdminPlane
from gateway.surfaces.admin.wire import Question, Wire
from policies.kinds import AdminAction
from policies.snapshot import Snapshot
from tests.gateway.refused import bad_tokens, seen, unauthenticated
from tests.gateway.stage import Records
from tests.gateway.tokens import Issuers

PATH = b"/admin/v1/asked"


class Door:
    """One question that reviewers may ask."""

    route = "admin-asked"
    model = Question
    actions = (AdminAction.LIVE_COUNTS,)

    def actions_of(self, _request: Question) -> tuple[AdminAction, ...]:
        return self.actions

    async def answer(self, _asked: Asked, _request: Question) -> Answered:
        return Answered(Wire(), {})


class Journal:
    """Uses are durable at once."""

    async def record_access(self, _access: Any) -> None:
        """Kept by nobody."""


async def _fetch(url: str) -> bytes:
    raise AssertionError(url)


def asked(snapshot: Snapshot, token: str | None) -> tuple[bytes, Any]:
    """What the operator gets, less ids, and the record."""
    sink, sent = Records(), b""
    plane = AdminPlane(
        snapshots=SnapshotHolder(snapshot),
        authenticator=Authenticator(fetch=_fetch),
        journal=Journal(),
        doors={PATH: Door()},
        sink=sink,  # type: ignore[arg-type]  # begins and records, and that is all
        limits=Limits(),
    )
    headers = [(b"host", b"gateway.test"), (b"content-type", b"application/json")]
    if token is not None:
        headers.append((b"authorization", b"Bearer " + token.encode()))
    body = json.dumps({"reason": "review of change 17"}).encode()
    headers.append((b"content-length", b"%d" % len(body)))
    scope = {
        "type": "http", "method": "POST", "raw_path": PATH, "query_string": b"",
        "headers": headers, "client": ("127.0.0.1", 1), "scheme": "http",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal sent
        own = [one for one in message.get("headers", []) if one[0] != b"x-request-id"]
        sent += repr((message.get("status"), own)).encode() + message.get("body", b"")

    asyncio.run(plane(scope, receive, send))
    (record,) = sink.all
    return sent.replace(record.request_id.encode(), b""), record


def test_token_that_is_not_believed_is_logged_with_what_is_wrong_and_told_nothing(
    believing: Snapshot, issuers: Issuers
) -> None:
    """Whatever it is, the operator gets the same answer."""
    answers = set()
    for why, (token, issuer) in bad_tokens(issuers).items():
        answer, record = asked(believing, token)
        assert seen(record) == unauthenticated(why, issuer)
        answers.add(answer)
    assert len(answers) == 1


def test_caller_without_a_credential_is_logged_as_such(believing: Snapshot) -> None:
    assert seen(asked(believing, None)[1]) == unauthenticated(Why.NO_CREDENTIAL)


def test_colleague_whose_roles_may_not_ask_is_logged_with_the_policys_word(
    believing: Snapshot, issuers: Issuers
) -> None:
    """The issuer is the one that signed: who it is was established."""
    record = asked(believing, issuers.token("employee"))[1]
    assert seen(record) == ("forbidden", "no_rule", "decide", "idp:staff")


@pytest.mark.parametrize("roles", [["policy-reviewer"], []])
def test_operators_question_is_no_request_that_a_candidate_could_decide_anew(
    believing: Snapshot, issuers: Issuers, roles: list[str]
) -> None:
    """Allowed or not: its door is no route of the policy."""
    record = asked(believing, issuers.token("employee", roles=roles))[1]
    assert record.decision == ("allow" if roles else "deny")
    (told,) = read_records([json.dumps(values_of(record, sampled=1.0))])
    assert told.request_obstacles == ("a question of an operator",)
