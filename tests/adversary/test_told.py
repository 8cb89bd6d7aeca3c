"""What operators learn of whoever is refused before there is a request, and of what stands behind.

Provenance: issue 4 parts 1, 3 and 7 ("limits, health, breakers" are told by the second listener).
"""

from __future__ import annotations

import json
import time

from tests.adversary.process import Gateway


def metrics(gateway: Gateway) -> dict[str, float]:
    (reply,) = gateway.replies(
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", listener="second"
    )
    pairs = [one.rpartition(" ") for one in reply.body.decode().splitlines() if one[0] != "#"]
    return {name: float(value) for name, _, value in pairs}


def test_refusal_of_the_protocol_is_counted_and_logged(gateway: Gateway) -> None:
    """By its code, and in the access log with the id that the caller was told; not one byte of
    what it sent stands there."""
    name = 'gateway_refused_connections_total{code="bad_host"}'
    before = metrics(gateway).get(name, 0)
    (reply,) = gateway.replies(b"GET /canary HTTP/1.1\r\nHost: a\r\nHost: canary\r\n\r\n")
    told = json.loads(reply.body)
    assert (reply.status, told["code"]) == (400, "bad_host")
    assert metrics(gateway)[name] == before + 1
    until = time.monotonic() + 10
    lines: list[bytes] = []
    while not lines and time.monotonic() < until:
        lines = [one for one in gateway.log_lines() if told["request_id"].encode() in one]
    (line,) = lines
    assert b"canary" not in line
    found = json.loads(line)
    assert (found["gateway.surface"], found["gateway.code"]) == ("protocol", "bad_host")
    assert found["http.response.status_code"] == 400


def test_every_backend_is_told_with_its_breaker_health_and_connections(gateway: Gateway) -> None:
    """One state of a breaker is 1; connections are those of this moment."""
    assert gateway.ask("GET", "/portal/customer/x", who="customer").status == 200
    found = metrics(gateway)
    assert found["gateway_connections"] >= 0
    mine = {name for name in found if name.startswith("gateway_backend_")}
    backends = {name.partition('backend="')[2].partition('"')[0] for name in mine}
    for backend in backends:
        states = [
            value
            for name, value in found.items()
            if name.startswith("gateway_backend_breaker{") and f'backend="{backend}"' in name
        ]
        assert states.count(1) * 3 == len(states)
    assert any(
        name.startswith('gateway_backend_connections{upstream="customer-portal"')
        and 'state="idle"' in name
        and value >= 1
        for name, value in found.items()
    ), found
