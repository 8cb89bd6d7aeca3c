"""An assertion that requests share: for one caller and target, for seconds, where an upstream's
settings say so; without them each request has its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import assertion as verifier
from gateway.authn.key_ring import RingKey
from gateway.authn.own_keys import OwnKeys
from gateway.compose.upstreams import targets
from gateway.relay.assertion import LIFE_S, REUSED_S, Shared, wording
from gateway.settings.model import UpstreamSettings
from tests.gateway.fastpath.asking import Caller, forget, head
from tests.gateway.stage import Stage

SAID = wording("gateway.test", "urn:portal", "s.1", "customer", "customer", "d", "GET", "/x")
NOW = 1_800_000_000.0
_ASSERTION = re.compile(rb"x-gateway-assertion: ([^\r]+)\r\n")


def believed(keys: OwnKeys, text: bytes, now: float) -> verifier.Caller:
    return verifier.verify(
        {verifier.HEADER: text.decode()},
        "GET",
        "/x",
        audience="urn:portal",
        keys=verifier.Keys(document=keys.jwks()),
        issuer="gateway.test",
        now=now,
    )


@given(moments=st.lists(st.floats(NOW - 200, NOW + 200, allow_nan=False), min_size=1, max_size=12))
def test_whoever_gets_it_can_believe_it_for_two_thirds_of_its_life(moments: list[float]) -> None:
    """Whatever the clock does meanwhile; it names no request."""
    keys = OwnKeys.generate()
    shared = Shared(keys, SAID)
    for now in moments:
        caller = believed(keys, shared.text(now), now)
        assert (caller.subject_id, caller.request_id) == ("s.1", "")
        assert now + LIFE_S - REUSED_S - 1 <= caller.expires_at <= now + LIFE_S


def test_it_is_signed_once_in_its_time_and_anew_by_another_ring() -> None:
    keys = OwnKeys.generate()
    shared = Shared(keys, SAID)
    first = shared.text(NOW)
    assert shared.text(NOW + REUSED_S - 0.1) == first
    assert shared.text(NOW + REUSED_S) != first
    keys.replace([RingKey.fresh()])
    assert believed(keys, shared.text(NOW + REUSED_S + 0.1), NOW + REUSED_S)


@pytest.fixture
def sharing(stage: Stage) -> Iterator[Stage]:
    """The stage, with a portal whose requests share an assertion."""
    was = stage.hop._targets
    there = replace(was["customer-portal"], shares_assertion=True)
    forget(stage)
    stage.hop._targets = {**was, "customer-portal": there}
    try:
        yield stage
    finally:
        stage.hop._targets = was
        forget(stage)


def assertions(stage: Stage, *asked: bytes) -> list[bytes]:
    """What the portal was told with these requests, over one connection."""
    stage.upstream.requests.clear()
    with Caller(stage) as caller:
        for raw in asked:
            assert caller.ask(raw).startswith(b"HTTP/1.1 200")
    return [_ASSERTION.findall(one)[0] for one in stage.upstream.requests]


def test_requests_of_one_caller_for_one_target_share_it(sharing: Stage) -> None:
    """The first comes the ordinary way, which knows nobody; the others are known."""
    _, second, third = assertions(sharing, *[head(sharing)] * 3)
    assert second == third


def test_nobody_else_and_no_other_target_shares_it(sharing: Stage) -> None:
    mine, elsewhere = head(sharing), head(sharing, "/portal/customer/y")
    another = head(sharing, token=sharing.issuers.token("customer", sub="somebody-else"))
    found = assertions(sharing, mine, mine, another, another, elsewhere, elsewhere, mine)
    assert found[-1] == found[1]
    assert len({found[1], found[3], found[5]}) == 3


def test_both_ways_name_no_request_in_it(sharing: Stage) -> None:
    for text in assertions(sharing, *[head(sharing)] * 2):
        caller = verifier.verify(
            {verifier.HEADER: text.decode()},
            "GET",
            "/portal/customer/x",
            audience="urn:portal:customer",
            keys=verifier.Keys(document=sharing.keys.jwks()),
            issuer=sharing.hop._gateway_id,
        )
        assert caller.request_id == ""


def test_without_the_setting_each_request_has_its_own(stage: Stage) -> None:
    forget(stage)
    assert len(set(assertions(stage, *[head(stage)] * 4))) == 4


def test_settings_of_an_upstream_say_whether_its_requests_share_one() -> None:
    address = "http://127.0.0.1:9"
    made = {
        "a": UpstreamSettings(address=address, assertion="shared"),
        "b": UpstreamSettings(address=address),
    }
    found = targets(made, known=("a", "b"))
    assert (found["a"].shares_assertion, found["b"].shares_assertion) == (True, False)
