"""One composed gateway in a thread of its own, for tests that only ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from retrieval.embedded import Embedded
from tests.gateway.admin.asking import Operators
from tests.gateway.admin.test_operators import ISSUERS
from tests.gateway.cli.made import environment
from tests.services import Cluster, Database, fresh_database
from tests.system.composed import composed


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as found:
        yield found


@pytest.fixture(scope="session")
def shared(
    services: Embedded,
    cluster: Cluster,
    migrated_template: Database,
    portal: BlockingPortal,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operators]:
    """A gateway over an empty database."""
    folder = tmp_path_factory.mktemp("operators")
    with fresh_database(cluster, template=migrated_template.name) as database:
        env = environment(services, database, folder)
        with portal.wrap_async_context_manager(composed(env, ISSUERS, folder)) as world:
            yield Operators(world)


@pytest.fixture
def asking(portal: BlockingPortal) -> Callable[..., Any]:
    """Calls something of the shared gateway in its own thread."""

    def call(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        async def asked() -> Any:
            return await method(*args, **named)

        return portal.call(asked)

    return call
