"""Limits of routes in a running gateway: refused clearly, and the upstream sees nothing of it.

Provenance: issue 4 part 3; attack log row D6.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.ingress.limits import Limits
from policies.snapshot import Snapshot
from tests.gateway.relay.conftest import needs
from tests.gateway.stage import Stage, parse
from tests.gateway.tokens import Issuers

needs("pyrate_limiter")

from gateway.relay.admission import (  # noqa: E402
    Admission,
    Allowance,
    LocalRates,
    RouteLimits,
)

CUSTOMER, PARTNER = "/portal/customer/x", "/portal/partner/x"


@pytest.fixture(scope="module")
def with_limits(believing: Snapshot, issuers: Issuers) -> Iterator[Stage]:
    """A gateway whose clock for rates stands still."""
    routes = {
        route.path.split("/")[2]: route.id for route in believing.routes if "/portal/" in route.path
    }
    admission = Admission(
        {
            routes["customer"]: RouteLimits(body_bytes=1_000),
            routes["partner"]: RouteLimits(
                allowance=Allowance(count=2, period_s=60, burst=2), at_once=5
            ),
        },
        rates=LocalRates(clock=lambda: 1.0),
    )
    with Stage(believing, issuers, Limits(request_s=5), admission) as stage:
        yield stage


@pytest.fixture
def limited(with_limits: Stage) -> Stage:
    """The gateway with limits, with nothing recorded."""
    with_limits.reset()
    return with_limits


def test_body_above_the_limit_of_its_route_never_reaches_the_upstream(limited: Stage) -> None:
    """Declared: refused before a byte. Just within: passed on."""
    token = limited.issuers.token("customer")
    refused = limited.ask("POST", CUSTOMER, token=token, body=b"x" * 1_001)
    assert (refused.status, b"body_too_large" in refused.body) == (413, True)
    assert limited.upstream.requests == []
    assert limited.ask("POST", CUSTOMER, token=token, body=b"x" * 1_000).status == 200


def test_chunked_body_above_the_limit_is_refused_in_the_middle(limited: Stage) -> None:
    """D6: 413 to the caller; the upstream sees its connection end, not the end of a body."""
    head = (
        f"POST {CUSTOMER} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        f"Transfer-Encoding: chunked\r\n"
        f"Authorization: Bearer {limited.issuers.token('customer')}\r\n\r\n"
    ).encode()
    chunk = b"200\r\n" + b"x" * 512 + b"\r\n"
    (reply,) = parse(limited.raw(head + chunk * 3 + b"0\r\n\r\n"))
    assert (reply.status, b"body_too_large" in reply.body) == (413, True)
    assert limited.upstream.requests == []


def test_caller_above_its_rate_waits_and_others_do_not(limited: Stage) -> None:
    """429 with the seconds to wait; the record says why; another caller is served."""
    first, second = (limited.issuers.token("partner", sub=name) for name in ("one", "two"))
    replies = [limited.ask("GET", PARTNER, token=first) for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 429]
    assert replies[2].header("retry-after") == "30"
    assert len(limited.upstream.requests) == 2
    assert limited.records.all[-1].code == "rate_limited"
    assert limited.ask("GET", PARTNER, token=second).status == 200
