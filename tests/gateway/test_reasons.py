"""Why a caller was refused: in every log the same word of ours, in no answer any.

Provenance: an operator who could not tell a revoked token from an expired one.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.authn.bearer import Authenticator
from gateway.decisions.fields import POLICY_REASONS
from gateway.errors import Code, Refusal
from gateway.reasons import Why
from gateway.relay.upstream import UpstreamUnavailable
from gateway.telemetry.counters import Counters
from policies.snapshot import Snapshot
from tests.gateway.fastpath.asking import Caller, head, warm
from tests.gateway.refused import OURS, bad_tokens, seen, unauthenticated
from tests.gateway.stage import Stage
from tests.gateway.test_delegation import forged, retrieve, through
from tests.gateway.test_revoked import line, revoking
from tests.gateway.tokens import Issuers

README = Path(__file__).parents[2] / "gateway" / "README.md"
BAD = tuple(bad_tokens(Issuers()))
_OWN = re.compile(rb'date: [^\r]+\r\n|x-request-id: [^\r]+\r\n|"request_id":"[^"]+"')


def last(stage: Stage) -> Any:
    assert stage.records.some.wait(5)
    return stage.records.all[-1]


def refused(stage: Stage, *lines: str, target: str = "/v1/scope") -> bytes:
    """The answer to one request with these header lines, less what is its own."""
    stage.records.forget()
    raw = "\r\n".join(
        (f"GET {target} HTTP/1.1", "Host: gateway.test", "Connection: close", *lines, "", "")
    )
    return _OWN.sub(b"", stage.raw(raw.encode("latin-1")))


@pytest.mark.parametrize("why", BAD)
@pytest.mark.parametrize("target", ["/v1/scope", "/portal/customer/x"])
def test_token_that_is_not_believed_is_logged_with_what_is_wrong_and_whose_it_says_to_be(
    stage: Stage, why: Why, target: str
) -> None:
    """By *identify*, which refuses it; the issuer is the policy's alias, never the token's text."""
    token, issuer = bad_tokens(stage.issuers)[why]
    refused(stage, f"Authorization: Bearer {token}", target=target)
    assert seen(last(stage)) == unauthenticated(why, issuer)


@pytest.mark.parametrize("words", [{"jti": "j-1"}, {"sub": "u-1"}], ids=["token", "caller"])
def test_revoked_token_is_logged_as_such_also_where_its_head_was_known(
    stage: Stage, words: dict[str, str]
) -> None:
    """The short way refuses nobody: it leaves what it does not know to the ordinary one."""
    raw = head(stage, token=stage.issuers.token("customer", jti="j-1"))
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        warm(stage, caller, raw)
        stage.records.forget()
        with revoking(stage, line(**words)):
            assert caller.ask(raw).startswith(b"HTTP/1.1 401")
    assert seen(last(stage)) == unauthenticated(Why.REVOKED, OURS)


def test_caller_cannot_tell_what_is_wrong_with_its_token(stage: Stage) -> None:
    """Unknown, forged, over, revoked: one answer, byte for byte."""
    told = {
        refused(stage, f"Authorization: Bearer {token}")
        for token, _ in bad_tokens(stage.issuers).values()
    }
    with revoking(stage, line(jti="j-1")):
        token = stage.issuers.token("customer", jti="j-1")
        told.add(refused(stage, f"Authorization: Bearer {token}"))
    told.add(refused(stage, "Authorization: Basic canary"))
    (answer,) = told
    assert answer.startswith(b"HTTP/1.1 401")
    assert not any(why.encode() in answer for why in Why)


@pytest.mark.parametrize(
    ("lines", "target", "found"),
    [
        ((), "/v1/scope", ("unauthenticated", "no_credential", "identify", "")),
        ((), "/portal/partner/x", ("unauthenticated", "no_credential", "place", "")),
        (("Authorization: Basic canary",), "/v1/scope",
         ("unauthenticated", "malformed_credential", "identify", "")),
        (("X-Gateway-Delegation: canary",), "/v1/scope",
         ("unauthenticated", "delegation_alone", "identify", "")),
    ],
)  # fmt: skip
def test_caller_without_one_sound_credential_is_logged_as_such(
    stage: Stage, lines: tuple[str, ...], target: str, found: tuple[str, ...]
) -> None:
    """Also where the policy's row is what keeps visitors out."""
    refused(stage, *lines, target=target)
    assert seen(last(stage)) == found


@pytest.mark.parametrize(
    ("audience", "claims", "target", "found"),
    [
        ("customer", {"groups": []}, "/v1/scope", ("no_audience", "no_audience", "place")),
        ("agent", {"tasks": []}, "/v1/scope", ("no_audience", "no_task_scope", "place")),
        ("agent", {}, "/portal/customer/x", ("no_audience", "no_tool", "place")),
        ("agent", {"tasks": ["answer", "audit"]}, "/v1/scope",
         ("task_scope_required", "task_scope_required", "place")),
        ("agent", {}, "/v1/scope?task_scope=canary",
         ("task_scope_refused", "task_scope_refused", "place")),
        ("employee", {}, "/v1/scope?audience=canary",
         ("audience_refused", "audience_refused", "place")),
        ("employee", {}, "/v1/scope?purpose=canary", ("bad_request", "unknown_purpose", "place")),
        ("customer", {}, "/portal/employee/x", ("forbidden", "no_rule", "decide")),
    ],
)  # fmt: skip
def test_caller_whom_policy_keeps_out_is_logged_with_why(
    stage: Stage, audience: str, claims: dict[str, Any], target: str, found: tuple[str, ...]
) -> None:
    token = stage.issuers.token(audience, **claims)
    refused(stage, f"Authorization: Bearer {token}", target=target)
    assert seen(last(stage))[:3] == found


def test_upstream_that_is_refused_is_logged_with_what_its_delegation_lacks(stage: Stage) -> None:
    """The issuer is that of the upstream's own token, which was believed; of a caller who is
    revoked it is the caller's."""
    portal = stage.issuers.service("portal-customer")
    sound = through(stage, "customer", "customer")
    services, now = "idp:services", time.time()
    for token, delegated, code, why, issuer in (
        (portal, None, "delegation_required", Why.DELEGATION_REQUIRED, services),
        (None, sound, "unauthenticated", Why.DELEGATION_ALONE, ""),
        (portal, forged(stage, now=now - 120), "unauthenticated", Why.DELEGATION_EXPIRED, services),
        (portal, "canary", "unauthenticated", Why.BAD_DELEGATION, services),
        (portal, forged(stage, now=now, gateway="urn:canary"), "unauthenticated",
         Why.BAD_DELEGATION, services),
        (stage.issuers.token("employee"), sound, "unauthenticated",
         Why.FOREIGN_DELEGATION, "idp:staff"),
    ):  # fmt: skip
        stage.records.forget()
        retrieve(stage, token, delegated)
        assert seen(last(stage)) == (code, str(why), "identify", issuer)
    stage.records.forget()
    with revoking(stage, line(sub="u-1")):
        retrieve(stage, portal, sound)
    assert seen(last(stage)) == unauthenticated(Why.REVOKED, OURS)
    lines = f"Authorization: Bearer {portal}", f"X-Gateway-Delegation: {sound}"
    refused(stage, *lines, target="/portal/employee/x")
    found = "forbidden", "delegation_elsewhere", "identify", services
    assert seen(last(stage)) == found


def test_issuer_whose_keys_cannot_be_had_is_named(believing: Snapshot, issuers: Issuers) -> None:
    """It is the issuer that operators have to ask; the caller is told to come again."""

    async def fetch(_: str) -> bytes:
        raise UpstreamUnavailable("down")

    here = next(one for one in believing.issuers if one.alias == OURS)
    away = replace(here, jwks="", jwks_uri="https://login.example/jwks")
    token = issuers.token("customer").encode()
    with pytest.raises(Refusal) as caught:
        asyncio.run(
            Authenticator(fetch=fetch).principal(token, issuers=[away], digest=believing.digest)
        )
    refusal = caught.value
    assert (refusal.code, refusal.why) == (Code.IDENTITY_UNAVAILABLE, Why.ISSUER_KEYS_UNAVAILABLE)
    assert refusal.issuer == OURS


def test_whoever_is_allowed_or_refused_for_something_else_has_no_reason(stage: Stage) -> None:
    """A reason is about a caller: a path that is none, or an upstream that fails, has a code."""
    stage.ask("GET", "/portal/customer/x", token=stage.issuers.token("customer"))
    assert last(stage).reason == ""
    refused(stage, target="/nowhere")
    assert (last(stage).code, last(stage).reason) == ("not_found", "")


def test_refused_callers_are_counted_by_reason_and_by_nothing_else(stage: Stage) -> None:
    """Words of a closed list: no caller can make a series."""
    counters = Counters()
    for why in BAD:
        token, _ = bad_tokens(stage.issuers)[why]
        refused(stage, f"Authorization: Bearer {token}")
        counters.add(last(stage))
        counters.add(last(stage))
    stage.ask("GET", "/portal/customer/x")
    counters.add(last(stage))
    assert counters.refusals == {(str(why),): 2 for why in BAD}
    assert 'gateway_refusals_total{reason="expired"} 2' in counters.text()


def test_every_reason_is_documented() -> None:
    """The README's table has the words, each once, and no others."""
    text = README.read_text().partition("**Why a caller was refused.**")[2]
    table = text.partition("| --- | --- |\n")[2].partition("\n\n")[0]
    words = [
        word for row in table.splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert sorted(words) == sorted(Why)
    assert set(POLICY_REASONS) - {"rule"} <= set(words)
