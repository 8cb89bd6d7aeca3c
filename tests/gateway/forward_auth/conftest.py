"""A gateway whose policy believes four proxies, each in its own dialect, by address."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from gateway.ingress.limits import Limits
from policies.snapshot import Snapshot, load
from tests.gateway.forward_auth.asking import ADDRESSES
from tests.gateway.stage import Stage
from tests.gateway.tokens import Issuers

_NAMES = {
    "nginx": "x-original-method, x-original-uri, x-original-host",
    "envoy": "x-ext-authz-method, x-ext-authz-path, x-ext-authz-host",
    "traefik": "x-forwarded-method, x-forwarded-uri, x-forwarded-host",
    # one that policy believes about addresses only
    "balancer": "x-request-id",
}


@pytest.fixture(scope="session")
def trusting(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """The default policy with these peers. Some systems have one loopback address only."""
    try:
        socket.create_server((ADDRESSES["nginx"], 0)).close()
    except OSError:
        message = f"this machine has no loopback address {ADDRESSES['nginx']}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    overlay = tmp_path_factory.mktemp("trusting")
    issuers.write(overlay)
    lines = ["trusted_peers:"]
    for name, words in _NAMES.items():
        lines.append(f"  {name}:")
        lines.append(f"    networks: [{ADDRESSES[name]}/32]")
        lines.append(f"    headers: [x-forwarded-for, x-forwarded-proto, {words}]")
    (overlay / "rules" / "trusted_peers.yaml").write_text("\n".join(lines) + "\n")
    return load(overlay=overlay)


@pytest.fixture(scope="session")
def deciding_stage(trusting: Snapshot, issuers: Issuers) -> Iterator[Stage]:
    with Stage(trusting, issuers, Limits(request_s=5)) as stage:
        yield stage


@pytest.fixture
def deciding(deciding_stage: Stage) -> Stage:
    """The gateway, with nothing recorded."""
    deciding_stage.reset()
    return deciding_stage
