"""Delegation: an upstream retrieves for its caller, and never as itself.

Provenance: issue part 4 (may_retrieve).
"""

from __future__ import annotations

import json
import time

import pytest

from gateway.authn import delegation
from gateway.authn.own_keys import OwnKeys
from policies.decision import PolicyDigest
from policies.subject import Principal
from tests.gateway import answers
from tests.gateway.stage import GATEWAY_ID, Reply, Stage

BODY = json.dumps({"query": "q"}).encode()


def through(stage: Stage, audience: str, portal: str) -> str:
    """The delegation that a portal gets when this caller visits it."""
    reply = stage.ask("GET", f"/portal/{portal}/x", token=stage.issuers.token(audience))
    assert reply.status == 200
    head = stage.upstream.requests[-1].decode("latin-1").split("\r\n")
    (line,) = [line for line in head if line.startswith("x-gateway-delegation:")]
    return line.partition(":")[2].strip()


def retrieve(stage: Stage, token: str | None, delegated: str | None) -> Reply:
    headers = [("Content-Type", "application/json")]
    if delegated is not None:
        headers.append(("X-Gateway-Delegation", delegated))
    return stage.ask("POST", "/v1/retrieve", token=token, headers=headers, body=BODY)


@pytest.fixture
def retrieving(stage: Stage) -> Stage:
    stage.registry.labels = {answers.key("open"): answers.label(stage.snapshot)}
    stage.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    return stage


def test_portal_retrieves_for_its_user(retrieving: Stage) -> None:
    """Both halves: the subject is the caller, the profiles are caller and upstream."""
    delegated = through(retrieving, "customer", "customer")
    reply = retrieve(retrieving, retrieving.issuers.service("portal-customer"), delegated)
    assert reply.status == 200
    own = retrieving.ask("GET", "/v1/scope", token=retrieving.issuers.token("customer"))
    subject = retrieving.retrieval.asks[0].subject
    assert subject.audience == "customer"
    assert subject.profiles == ("customer",)
    assert list(subject.tenants) == json.loads(own.body)["tenants"] == ["acme"]


def test_result_is_the_intersection_of_caller_and_upstream(stage: Stage) -> None:
    """An employee's token, delegated through a portal for customers, opens customers' units."""
    caller = Principal(
        issuer="idp:staff",
        subject_id="s.1",
        claims={"groups": frozenset({"grp:staff"})},
        tenants=("acme", "other"),
        jurisdictions=(),
        expires_at=time.time() + 300,
    )
    delegated = delegation.issue(
        stage.keys,
        gateway_id=GATEWAY_ID,
        caller=caller,
        upstream="customer-portal",
        digest=stage.snapshot.digest,
        now=time.time(),
    ).decode()
    stage.registry.labels = {
        answers.key("open"): answers.label(stage.snapshot),
        answers.key("staff"): answers.label(stage.snapshot, visibility="employee"),
    }
    stage.retrieval.script = lambda ask: answers.answer(ask, ["open", "staff"])
    reply = retrieve(stage, stage.issuers.service("portal-customer"), delegated)
    assert stage.retrieval.asks[0].subject.profiles == ("employee", "customer")
    assert b"title of open" in reply.body
    assert b"title of staff" not in reply.body


def test_upstream_never_retrieves_as_itself(retrieving: Stage) -> None:
    """Its own credential alone: 403 with a code of its own."""
    reply = retrieve(retrieving, retrieving.issuers.service("portal-customer"), None)
    assert (reply.status, json.loads(reply.body)["code"]) == (403, "delegation_required")
    assert retrieving.retrieval.asks == []


def test_delegation_is_worthless_without_its_upstream(retrieving: Stage) -> None:
    """Stolen by the caller, by another portal, by a stranger, by nobody: 401."""
    delegated = through(retrieving, "customer", "customer")
    issuers = retrieving.issuers
    for token in (
        None,
        issuers.token("customer"),
        issuers.token("employee"),
        issuers.service("portal-employee"),
        issuers.service("nobody"),
    ):
        assert retrieve(retrieving, token, delegated).status == 401
    assert retrieving.retrieval.asks == []


def test_anonymous_visitor_gets_no_delegation(retrieving: Stage) -> None:
    """Nobody cannot be retrieved for: the header is there and empty."""
    assert retrieving.ask("GET", "/portal/customer/x").status == 200
    head = retrieving.upstream.requests[-1]
    assert b"\r\nx-gateway-delegation: \r\n" in head


def test_delegation_does_not_open_portals(retrieving: Stage) -> None:
    """It retrieves, and nothing else."""
    delegated = through(retrieving, "customer", "customer")
    reply = retrieving.ask(
        "GET",
        "/portal/employee/x",
        token=retrieving.issuers.service("portal-employee"),
        headers=[("X-Gateway-Delegation", delegated)],
    )
    assert reply.status == 403


def forged(stage: Stage, *, now: float, keys: OwnKeys | None = None, gateway: str = "") -> str:
    caller = Principal("idp:customers", "s.1", {}, (), (), now + 300)
    return delegation.issue(
        keys or stage.keys,
        gateway_id=gateway or GATEWAY_ID,
        caller=caller,
        upstream="customer-portal",
        digest=PolicyDigest("0" * 64),
        now=now,
    ).decode()


def test_forged_old_or_foreign_delegation_is_refused(retrieving: Stage) -> None:
    """Another key, another gateway, too old, tampered with, an assertion in its place."""
    service = retrieving.issuers.service("portal-customer")
    now = time.time()
    sound = through(retrieving, "customer", "customer")
    head = retrieving.upstream.requests[-1].decode("latin-1")
    assertion = head.partition("x-gateway-assertion: ")[2].partition("\r\n")[0]
    for bad in (
        forged(retrieving, now=now, keys=OwnKeys.generate()),
        forged(retrieving, now=now, gateway="urn:audience-gateway:other"),
        forged(retrieving, now=now - 120),
        sound[:-2] + ("AA" if not sound.endswith("AA") else "BB"),
        assertion,
        retrieving.issuers.token("customer"),
        "x",
    ):
        assert retrieve(retrieving, service, bad).status == 401
    assert retrieve(retrieving, service, forged(retrieving, now=now)).status == 403
    assert retrieve(retrieving, service, sound).status == 200


def test_one_signature_serves_a_caller_for_a_while_and_nobody_else() -> None:
    """Handed out again for 20 s: not to another principal, upstream, policy or ring of keys."""
    keys = OwnKeys.generate()
    delegations = delegation.Delegations(keys, gateway_id=GATEWAY_ID)
    digest, now = PolicyDigest("d" * 64), 1_000_000.0
    words = {"groups": frozenset({"grp:customers"})}
    one, other = (
        Principal("idp:customers", "s.1", words, ("acme",), (), now + 3_600) for _ in range(2)
    )

    def token(
        caller: Principal = one,
        upstream: str = "customer-portal",
        under: PolicyDigest = digest,
        at: float = now,
    ) -> bytes:
        return delegations.token(caller, upstream=upstream, digest=under, now=at)

    first = token()
    assert token(at=now + 19) == first
    assert token(other) != first
    assert token(upstream="partner-portal") != first
    assert token(at=now + 20) != first
    again = token()
    assert token(under=PolicyDigest("e" * 64)) != again
    again = token()
    keys.replace(OwnKeys.generate().keys)
    assert token() != again


def test_a_delegation_that_is_handed_out_again_is_still_believed_for_forty_seconds() -> None:
    keys = OwnKeys.generate()
    delegations = delegation.Delegations(keys, gateway_id=GATEWAY_ID)
    now = time.time()
    caller = Principal("idp:customers", "s.1", {}, (), (), now + 3_600)
    digest = PolicyDigest("d" * 64)
    delegations.token(caller, upstream="u", digest=digest, now=now)
    late = now + delegation.REUSED_S - 1
    text = delegations.token(caller, upstream="u", digest=digest, now=late)
    whose, through_whom = delegation.accept(text, keys, gateway_id=GATEWAY_ID, now=late + 40)
    assert (whose.subject_id, through_whom) == ("s.1", "u")
