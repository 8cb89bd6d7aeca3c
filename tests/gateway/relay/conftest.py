"""The transports under test, one by one: what is said of one is said of each."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import pytest

from gateway.relay.pool import Pool
from gateway.relay.upstream import UpstreamTransport

Transport = Callable[..., UpstreamTransport]
"""Makes one from ``address=`` and, where a test needs them, ``times=`` and ``limit=``."""


@pytest.fixture(params=["pool", "aiohttp"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Each implementation of :class:`UpstreamTransport`."""
    if request.param == "pool":
        return Pool
    if importlib.util.find_spec("aiohttp") is None and not os.environ.get("CI"):
        pytest.skip("aiohttp is not installed: it is an extra")
    from gateway.relay.aiohttp_pool import AiohttpPool

    return AiohttpPool


def needs(module: str) -> None:
    """Skip a module of tests where a distribution of the locks is not installed yet; CI fails."""
    if importlib.util.find_spec(module) is None and not os.environ.get("CI"):
        pytest.skip(f"{module} is not installed", allow_module_level=True)
