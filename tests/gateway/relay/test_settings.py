"""What the settings of upstreams and routes become: nothing is lost on the way, nothing guessed.

Provenance: issue 4 parts 3 and 7; chosen by us: a limit under a wrong name ends the start.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway.compose.failure import CannotStart
from gateway.compose.upstreams import fleet_of
from gateway.relay.balance import Balance
from gateway.settings.model import HealthSettings, RouteLimitSettings, UpstreamSettings
from tests.gateway.relay.conftest import needs


def test_every_setting_of_an_upstream_reaches_its_fleet() -> None:
    """Each value differs from its default, so one that is forgotten shows."""
    fleet = fleet_of(
        UpstreamSettings(
            address="http://a.test:1",
            further_addresses=["http://b.test:2"],
            balance="least_requests",
            connections_max=3,
            sockets_max=4,
            connect_ms=5_000,
            first_byte_ms=6_000,
            idle_ms=7_000,
            write_ms=8_000,
            total_ms=9_000,
            breaker_failures=10,
            breaker_open_ms=11_000,
            health=HealthSettings(
                path="/up?x", interval_ms=12_000, timeout_ms=13_000, failures=14, passes=15
            ),
        )
    )
    times, check = fleet.times, fleet.check
    assert [one.authority for one in fleet.addresses] == [b"a.test:1", b"b.test:2"]
    assert fleet.balance is Balance.LEAST_REQUESTS
    assert (fleet.connections_max, fleet.sockets_max) == (3, 4)
    assert (times.connect_s, times.first_byte_s, times.idle_s) == (5, 6, 7)
    assert (times.write_s, times.total_s) == (8, 9)
    assert (fleet.failures_max, fleet.open_s) == (10, 11)
    assert check is not None
    assert (check.path, check.host, check.interval_s) == ("/up?x", b"a.test:1", 12)
    assert (check.timeout_s, check.failures, check.passes) == (13, 14, 15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "http://a", "further_addresses": ["https://b"]},
        {"address": "http://a", "further_addresses": ["http://a"]},
        {"address": "http://a", "further_addresses": ["http://b/path"]},
        {"address": "http://a", "ca_file": "ca.pem"},
        {"address": "http://a", "client": "httpx"},
        {"address": "http://a", "balance": "random"},
        {"address": "http://a", "health": {"path": "up"}},
        {"address": "http://a", "health": {"path": "/ü"}},
        {"address": "http://a", "breaker_failures": 0},
    ],
    ids=str,
)
def test_upstream_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    """Before anything is opened, with the key."""
    with pytest.raises(ValidationError):
        UpstreamSettings.model_validate(wrong)


def test_limits_of_a_route_are_read_and_belong_to_a_route() -> None:
    """A burst is what the rate allows at once unless it is named."""
    needs("pyrate_limiter")
    from gateway.compose.route_limits import route_limits
    from gateway.relay.admission import Allowance, Per, RouteLimits

    settings = {
        "a": RouteLimitSettings(body_bytes_max=1, at_once_max=2, rate=3, rate_period_ms=4_000),
        "b": RouteLimitSettings(rate=3, burst=5, rate_per="route"),
    }
    assert route_limits(settings, {"a", "b", "c"}) == {
        "a": RouteLimits(
            body_bytes=1,
            at_once=2,
            allowance=Allowance(count=3, period_s=4, burst=3, per=Per.CALLER),
        ),
        "b": RouteLimits(allowance=Allowance(count=3, period_s=1, burst=5, per=Per.ROUTE)),
    }
    with pytest.raises(CannotStart, match="unknown_route"):
        route_limits(settings, {"a"})


def test_burst_without_a_rate_is_refused() -> None:
    """It would limit nothing."""
    with pytest.raises(ValidationError, match="rate"):
        RouteLimitSettings(burst=2)
