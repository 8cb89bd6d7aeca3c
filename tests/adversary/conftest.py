"""One gateway process for the session; what every test must leave behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.snapshot import Snapshot, load
from retrieval.embedded import Embedded
from tests.adversary.process import Gateway, running_gateway
from tests.gateway.tokens import Issuers
from tests.services import Cluster, Database, fresh_database


@pytest.fixture(scope="session")
def gateway_process(
    services: Embedded,
    cluster: Cluster,
    migrated_template: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """``gateway serve``, started by the first test that needs it."""
    folder = tmp_path_factory.mktemp("adversary")
    with (
        fresh_database(cluster, template=migrated_template.name) as database,
        running_gateway(services, database, folder) as gateway,
    ):
        yield gateway


@pytest.fixture(scope="session")
def issuers() -> Issuers:
    """Keys for gateways that run inside a test."""
    return Issuers()


@pytest.fixture(scope="session")
def believing(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """The default policy, with those issuers."""
    overlay = tmp_path_factory.mktemp("overlay")
    issuers.write(overlay)
    return load(overlay=overlay)


@pytest.fixture
def gateway(gateway_process: Gateway, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """The running gateway, nothing recorded, in the stance that the test names, if any. Whatever a
    test sends, it is alive afterwards and its log holds no error and no traceback."""
    stance = getattr(request, "param", Gateway)
    gateway_process.arrived.clear()
    said = len(gateway_process.said)
    yield stance(**vars(gateway_process))
    assert gateway_process.process.poll() is None
    assert gateway_process.ask("GET", "/v1/scope").status == 401
    assert gateway_process.faults() == [], gateway_process.said[said:]
