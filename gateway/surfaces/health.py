"""The second listener: liveness, readiness and metrics, for operators and orchestrators.

Beside it, under ``/admin/``, ``surfaces.admin`` answers authenticated operators.

Laws
    * Nothing of a caller is answered here, and nothing here opens the first listener. Who may
      be answered more is an authenticated operator with a role that ``rules/admin.csv`` allows.
    * A check answers with a word of ours. No address, secret or foreign error text leaves.
    * Ready means: every *required* check says ``ok`` and the gateway is not draining. A
      failing check that is not required makes it ``degraded``, which is still ready: what
      can be answered in full is answered, the rest is refused per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

OK: Final = "ok"
TIMED_OUT: Final = "timed_out"
CHECK_S: Final = 2.5
"""How long one check may take; all of them run at once. A little longer than a store is waited
for, so that a store that is down has its own code."""

_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_NO_STORE: Final = {"cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the gateway needs. ``run`` answers ``ok`` or a stable code.

    ``run`` maps its own errors to codes; it must not raise.
    """

    name: str
    run: Callable[[], Awaitable[str]]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Readiness:
    """The state of the gateway: ``ready``, ``degraded`` or ``not_ready``, and why."""

    status: str
    checks: dict[str, str]

    @property
    def ready(self) -> bool:
        return self.status != "not_ready"


class Health:
    """Runs the checks. ``drain()`` makes readiness false for good, before connections end."""

    def __init__(self, checks: tuple[Check, ...], *, check_s: float = CHECK_S) -> None:
        self._checks = checks
        self._check_s = check_s
        self._draining = False

    def drain(self) -> None:
        self._draining = True

    async def readiness(self) -> Readiness:
        """Ask every check at once; one that takes too long answers ``timed_out``."""
        codes = await asyncio.gather(*(self._run(check) for check in self._checks))
        found = dict(zip((check.name for check in self._checks), codes, strict=True))
        failing = [check for check in self._checks if found[check.name] != OK]
        if self._draining or any(check.required for check in failing):
            status = "not_ready"
        else:
            status = "degraded" if failing else "ready"
        if self._draining:
            found["drain"] = "draining"
        return Readiness(status, found)

    async def _run(self, check: Check) -> str:
        try:
            async with asyncio.timeout(self._check_s):
                return await check.run()
        except TimeoutError:
            return TIMED_OUT


def health_app(health: Health, metrics: Callable[[], str]) -> Starlette:
    """The ASGI application of the second listener: /livez, /readyz and /metrics."""

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "alive"}, headers=_NO_STORE)

    async def readyz(_: Request) -> Response:
        found = await health.readiness()
        return JSONResponse(
            {"status": found.status, "checks": found.checks},
            status_code=200 if found.ready else 503,
            headers=_NO_STORE,
        )

    async def show_metrics(_: Request) -> Response:
        return PlainTextResponse(metrics(), media_type=_PROMETHEUS, headers=_NO_STORE)

    application = Starlette(
        routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", show_metrics)]
    )
    application.router.redirect_slashes = False  # to an address that the caller's Host would name
    return application
