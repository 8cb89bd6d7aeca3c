"""Fixtures of the gateway's tests: one running gateway for the session, reset per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.ingress.limits import Limits
from policies.snapshot import Snapshot, load
from tests.gateway.stage import Stage
from tests.gateway.tokens import Issuers


@pytest.fixture(scope="session")
def issuers() -> Issuers:
    """Fresh keys of every issuer."""
    return Issuers()


@pytest.fixture(scope="session")
def believing(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """The default policy, with the issuers of the tests."""
    overlay = tmp_path_factory.mktemp("overlay")
    issuers.write(overlay)
    return load(overlay=overlay)


@pytest.fixture(scope="session")
def running(believing: Snapshot, issuers: Issuers) -> Iterator[Stage]:
    """The gateway, with times short enough to wait for."""
    limits = Limits(header_s=0.4, body_s=1, body_idle_s=0.5, keep_alive_s=2, request_s=5)
    with Stage(believing, issuers, limits) as stage:
        yield stage


@pytest.fixture
def stage(running: Stage) -> Stage:
    """The running gateway, with nothing recorded and nothing scripted."""
    running.reset()
    return running
