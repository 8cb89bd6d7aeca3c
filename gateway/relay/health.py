"""Asking a backend how it is, also when no caller does.

A check is one GET with a time of its own, over no caller's connection, in no caller's name. A
2xx is well; everything else, silence too, is not. Several in a row are needed to change a
verdict, so that one lost packet takes nothing out of service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.relay.balance import Backend
from gateway.relay.upstream import UpstreamError, UpstreamRequest, UpstreamTransport

_LOG: Final = logging.getLogger("gateway.relay")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """What is asked and how often; ``host`` is the Host value that goes with it."""

    path: str
    host: bytes
    interval_s: float = 10.0
    timeout_s: float = 2.0
    failures: int = 2
    passes: int = 1


async def watch(
    backends: Sequence[Backend],
    check: HealthCheck,
    transport: Callable[[Backend], UpstreamTransport],
) -> None:
    """Keep ``well`` of every backend true to what it answers, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for backend in backends:
            group.create_task(_watch_one(backend, check, transport(backend)))


async def _watch_one(backend: Backend, check: HealthCheck, transport: UpstreamTransport) -> None:
    in_a_row = 0
    try:
        while True:
            if await is_well(transport, check) is backend.well:
                in_a_row = 0
            else:
                in_a_row += 1
                if in_a_row >= (check.failures if backend.well else check.passes):
                    backend.well = not backend.well
                    in_a_row = 0
                    authority = backend.address.authority.decode("ascii")
                    _LOG.warning("backend %s is %s", authority, "well" if backend.well else "ill")
            await asyncio.sleep(check.interval_s)
    finally:
        await transport.aclose()


async def is_well(transport: UpstreamTransport, check: HealthCheck) -> bool:
    """Whether one check is answered with a 2xx in its time."""
    request = UpstreamRequest(
        method="GET",
        target=check.path.encode("ascii"),
        headers=((b"host", check.host), (b"user-agent", b"audience-gateway health")),
    )
    try:
        async with asyncio.timeout(check.timeout_s):
            response = await transport.request(request)
            try:
                async for _ in response:
                    pass
            finally:
                await response.aclose()
    except (UpstreamError, TimeoutError):
        return False
    except Exception:  # noqa: BLE001 - a defect of ours must not end the checks: not proven well is ill
        _LOG.exception("a health check failed in itself")
        return False
    return 200 <= response.status < 300
