"""An assertion that reads share: for one caller and target, for seconds, where no upstream's
settings forbid it; what is no read always has its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import assertion as verifier
from gateway.authn.key_ring import RingKey
from gateway.authn.own_keys import OwnKeys
from gateway.compose.upstreams import targets
from gateway.relay.assertion import LIFE_S, REUSED_S, Shared, wording
from gateway.settings.model import UpstreamSettings
from tests.gateway.fastpath.asking import PATH, Caller, forget, head
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
    """Whatever the clock does meanwhile; it names one of those who got it, the first."""
    keys = OwnKeys.generate()
    shared = Shared(keys, SAID)
    named: dict[bytes, str] = {}
    for number, now in enumerate(moments):
        text = shared.text(f"r-{number}", now)
        caller = believed(keys, text, now)
        assert caller.subject_id == "s.1"
        assert caller.request_id == named.setdefault(text, f"r-{number}")
        assert now + LIFE_S - REUSED_S - 1 <= caller.expires_at <= now + LIFE_S


def test_it_is_signed_once_in_its_time_and_anew_by_another_ring() -> None:
    keys = OwnKeys.generate()
    shared = Shared(keys, SAID)
    first = shared.text("r-1", NOW)
    assert shared.text("r-2", NOW + REUSED_S - 0.1) == first
    assert shared.text("r-2", NOW + REUSED_S) != first
    keys.replace([RingKey.fresh()])
    assert believed(keys, shared.text("r-3", NOW + REUSED_S + 0.1), NOW + REUSED_S)


class _Unwell(OwnKeys):
    """Keys of which a ring cannot sign."""

    unwell = False

    def sign_text(self, claims: bytes, *, typ: str) -> bytes:
        if self.unwell:
            raise ValueError("cannot sign")
        return super().sign_text(claims, typ=typ)


def test_what_another_ring_signed_is_never_told_again_though_this_one_cannot_sign() -> None:
    """A key may have gone because it became known."""
    keys = _Unwell([RingKey.fresh()])
    shared = Shared(keys, SAID)
    first = shared.text("r-1", NOW)
    keys.replace([RingKey.fresh()])
    keys.unwell = True
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot sign"):
            shared.text("r-2", NOW + 1)
    keys.unwell = False
    assert shared.text("r-3", NOW + 1) != first


@pytest.fixture
def strict(stage: Stage) -> Iterator[Stage]:
    """The stage, with a portal whose requests have an assertion each."""
    was = stage.hop._targets
    there = replace(was["customer-portal"], signs_each=True)
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


def post(stage: Stage) -> bytes:
    """What `head` asks, as a POST."""
    return head(stage, PATH, "Content-Length: 0").replace(b"GET", b"POST", 1)


def test_reads_of_one_caller_for_one_target_share_it(stage: Stage) -> None:
    """The first comes the ordinary way, which knows nobody; the others are known."""
    forget(stage)
    _, second, third = assertions(stage, *[head(stage)] * 3)
    assert second == third


def test_nobody_else_and_no_other_target_shares_it(stage: Stage) -> None:
    forget(stage)
    mine, elsewhere = head(stage), head(stage, "/portal/customer/y")
    another = head(stage, token=stage.issuers.token("customer", sub="somebody-else"))
    found = assertions(stage, mine, mine, another, another, elsewhere, elsewhere, mine)
    assert found[-1] == found[1]
    assert len({found[1], found[3], found[5]}) == 3


def test_what_is_no_read_has_its_own_each(stage: Stage) -> None:
    forget(stage)
    assert len(set(assertions(stage, *[post(stage)] * 4))) == 4


def test_each_request_has_its_own_where_the_upstream_asks_for_it(strict: Stage) -> None:
    """It names that very request, as `verify` can demand."""
    assert len(set(assertions(strict, *[head(strict)] * 4))) == 4
    for request in strict.upstream.requests:
        named = re.findall(rb"x-request-id: ([^\r]+)\r\n", request)[0].decode()
        assert verified(strict, request, request_id=named).request_id == named


def test_a_shared_one_is_refused_by_a_portal_that_demands_its_own(stage: Stage) -> None:
    """It names the read that was signed, which the portal saw."""
    forget(stage)
    assertions(stage, *[head(stage)] * 3)
    _, signed, later = stage.upstream.requests
    first, last = (
        re.findall(rb"x-request-id: ([^\r]+)", one)[0].decode() for one in (signed, later)
    )
    assert verified(stage, later).request_id == first
    for wanted in (last, None, ""):  # none or an empty one: what a portal reads of no header
        with pytest.raises(verifier.NotAsserted) as refused:
            verified(stage, later, request_id=wanted)
        assert refused.value.fault is verifier.Fault.WRONG_REQUEST


def verified(
    stage: Stage,
    request: bytes,
    *,
    request_id: str | Literal[verifier.Named.ANY] | None = verifier.Named.ANY,
) -> verifier.Caller:
    """What the portal learns from a request that arrived."""
    return verifier.verify(
        {verifier.HEADER: _ASSERTION.findall(request)[0].decode()},
        "GET",
        PATH,
        audience="urn:portal:customer",
        keys=verifier.Keys(document=stage.keys.jwks()),
        issuer=stage.hop._gateway_id,
        request_id=request_id,
    )


def test_settings_of_an_upstream_say_whether_each_request_has_its_own() -> None:
    address = "http://127.0.0.1:9"
    made = {
        "a": UpstreamSettings(address=address, assertion="each"),
        "b": UpstreamSettings(address=address),
    }
    found = targets(made, known=("a", "b"))
    assert (found["a"].signs_each, found["b"].signs_each) == (True, False)
