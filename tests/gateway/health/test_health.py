"""The second listener: what operators and orchestrators see, and what nobody sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from gateway.surfaces.health import Check, Health, health_app


def says(code: str) -> Callable[[], Awaitable[str]]:
    async def run() -> str:
        return code

    return run


async def hangs() -> str:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def answer(health: Health, path: str, method: str = "GET") -> httpx.Response:
    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(health_app(health, lambda: "gateway_up 1\n"))
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            return await client.request(method, path)

    return asyncio.run(main())


def readiness(*checks: Check, drained: bool = False) -> tuple[int, dict[str, Any]]:
    health = Health(checks, check_s=0.05)
    if drained:
        health.drain()
    response = answer(health, "/readyz")
    found: dict[str, Any] = response.json()
    return response.status_code, found


def test_ready_when_every_check_says_ok() -> None:
    """Status and one code per check."""
    assert readiness(Check("policy", says("ok")), Check("index", says("ok"), required=False)) == (
        200,
        {"status": "ready", "checks": {"policy": "ok", "index": "ok"}},
    )


def test_required_check_that_fails_makes_not_ready() -> None:
    """Postgres down: every guarded route is 503, so no traffic should come."""
    status, found = readiness(Check("database", says("database_unavailable")))
    assert (status, found["status"]) == (503, "not_ready")
    assert found["checks"] == {"database": "database_unavailable"}


def test_optional_check_that_fails_degrades_and_stays_ready() -> None:
    """Qdrant down: threads are served in full, so traffic must still come."""
    status, found = readiness(
        Check("database", says("ok")), Check("index", says("index_unavailable"), required=False)
    )
    assert (status, found["status"]) == (200, "degraded")


def test_check_that_hangs_is_a_code_and_holds_up_nobody() -> None:
    """A probe must end: the others' answers stand beside it."""
    status, found = readiness(Check("slow", hangs), Check("policy", says("ok")))
    assert (status, found["checks"]) == (503, {"slow": "timed_out", "policy": "ok"})


def test_draining_is_not_ready_whatever_the_checks_say() -> None:
    """The load balancer must see it before connections end."""
    status, found = readiness(Check("policy", says("ok")), drained=True)
    assert (status, found["status"], found["checks"]["drain"]) == (503, "not_ready", "draining")


def test_alive_depends_on_nothing() -> None:
    """Liveness must not restart a gateway because a store is down."""
    response = answer(Health((Check("database", says("down")),)), "/livez")
    assert (response.status_code, response.json()) == (200, {"status": "alive"})


def test_metrics_are_prometheus_text() -> None:
    """Content type of the text format, version 0.0.4."""
    response = answer(Health(()), "/metrics")
    assert response.text == "gateway_up 1\n"
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/scope"), ("POST", "/v1/retrieve"), ("GET", "/")]
)
def test_no_callers_route_is_answered_here(method: str, path: str) -> None:
    """The second listener is not a way around the stations."""
    assert answer(Health(()), path, method).status_code == 404


@pytest.mark.parametrize("path", ["/livez/", "/readyz/", "/readyz//", "/metrics/"])
def test_a_slash_at_the_end_is_another_path_here_too(path: str) -> None:
    """A12, A15: nothing is folded, and nobody is sent to the host that a request names."""
    response = answer(Health(()), path)
    assert (response.status_code, response.headers.get("location")) == (404, None)
