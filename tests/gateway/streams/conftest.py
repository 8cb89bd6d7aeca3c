"""One running gateway whose portals take sockets, for all tests of streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.ingress.limits import Limits
from tests.gateway.stage import Stage
from tests.gateway.streams.staging import DOORS, ROUTES, UNITS, Scene, policy
from tests.gateway.tokens import Issuers

OTHERS = {
    "unrelated": {UNITS: [("# ", "#  ")]},
    "no customer portal": {
        DOORS: [("p, R-CUS-1, customer, portal-customer, GET|HEAD|POST, allow\n", "")]
    },
    "partners only": {DOORS: [("p, R-CUS-1, customer,", "p, R-CUS-1, customer|partner,")]},
    "other origin": {ROUTES: [("[https://portal.example, absent]", "[absent]")]},
    "other upstream": {ROUTES: [("upstream: customer-portal", "upstream: partner-portal")]},
}


@pytest.fixture(scope="session")
def playing(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The gateway, started once."""
    folder = tmp_path_factory.mktemp("streams") / "overlay"
    opened = policy(issuers, folder)
    others = {name: policy(issuers, folder, edits) for name, edits in OTHERS.items()}
    limits = Limits(
        header_s=2, keep_alive_s=2, request_s=5, message_bytes=100_000, stream_idle_s=600
    )
    with Stage(opened, issuers, limits) as stage:
        yield Scene(stage, issuers, opened, others)


@pytest.fixture
def scene(playing: Scene) -> Scene:
    """The running gateway with a portal that echoes, and nothing recorded."""
    playing.play()
    return playing
