"""Fixtures of the whole suite, and the rules it runs under.

Tests are plain functions; what is asynchronous runs under ``asyncio.run`` inside the test.
Services are real and shared (``tests.services``); each is started by the first test that
asks for it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from retrieval.embedded import Embedded
from tests.services import (
    Cluster,
    Database,
    VectorService,
    cluster_of,
    embedded_pair,
    fresh_database,
    log_in_quickly,
)
from tests.spread import Spread, is_short

if TYPE_CHECKING:  # imported where used, so that one broken house fails its own tests only
    from policies.snapshot import Snapshot

# Two cores under several suites at once: a deadline would measure the neighbours.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("deep", settings.get_profile("default"), max_examples=1000)
settings.register_profile("nightly", settings.get_profile("default"), max_examples=2_000)
# `make mutation` asks whether a test fails, not with which smallest example.
settings.register_profile(
    "mutation", settings.get_profile("default"), phases=[Phase.explicit, Phase.generate]
)


def pytest_configure(config: pytest.Config) -> None:
    """``make test-deep`` names the marker ``slow``: then the laws are tried harder, too.

    Whatever the environment says, compiled files are kept: hundreds of processes are started,
    and each would compile ours anew (0.3 s, of the 1.5 to 4 s that a ``gateway serve`` costs).
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if config.getoption("hypothesis_profile", None) is None:
        settings.load_profile("deep" if "slow" in config.option.markexpr else "default")


def pytest_collection_finish() -> None:
    """Thousands of tests stay for the whole run: the collector need not walk them each time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow ones out unless an expression over markers was given; the long ones first.

    Among the long files and among the others the order stays the random one (`pytest-randomly`
    shuffles before). See ``tests.spread``.
    """
    if not config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in slow]
    items.sort(key=lambda item: is_short(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread | None:
    """Ours in the place of `loadfile`; any other is xdist's."""
    return Spread(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real material beside the repository (each part has its own README)."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        message = f"the shared test data is not at `{folder}`"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def services() -> Iterator[Embedded]:
    """The embedded pair of this session. Never kill it: tests that do start their own."""
    with embedded_pair(in_memory=True) as pair:
        log_in_quickly(cluster_of(pair))
        yield pair


@pytest.fixture(scope="session")
def cluster(services: Embedded) -> Cluster:
    """The shared Postgres, as its superuser."""
    return cluster_of(services)


@pytest.fixture(scope="session")
def sidecar(services: Embedded) -> VectorService:
    """The shared vector engine."""
    return VectorService(url=services.qdrant_url, api_key=services.qdrant_api_key)


@pytest.fixture
def empty_database(cluster: Cluster) -> Iterator[Database]:
    """A database with nothing in it, for this test alone."""
    with fresh_database(cluster) as database:
        yield database


@pytest.fixture(scope="session")
def snapshot() -> Snapshot:
    """The default policy, loaded once. It is immutable."""
    from policies.snapshot import load

    return load()


@pytest.fixture(scope="session")
def migrated_template(cluster: Cluster, snapshot: Snapshot) -> Iterator[Database]:
    """A database with this version's schema, for others to be copied from. Never write to it."""
    from retrieval.schema.migrate import migrate

    with fresh_database(cluster) as database:
        migrate(database.url, database.secret, snapshot)
        yield database


@pytest.fixture
def database(cluster: Cluster, migrated_template: Database) -> Iterator[Database]:
    """A migrated database without content, for this test alone."""
    with fresh_database(cluster, template=migrated_template.name) as database:
        yield database


@pytest.fixture(scope="session")
def peps_template(
    cluster: Cluster, migrated_template: Database, snapshot: Snapshot, shared_data: Path
) -> Iterator[Database]:
    """All 703 documents of the PEP corpus, with vectors of the hashing embedder (20 s, once).

    The default policy is active in it. Never write to it: see ``peps_database``.
    """
    from tests.peps import fill

    with fresh_database(cluster, template=migrated_template.name) as database:
        fill(database, snapshot, shared_data)
        yield database


@pytest.fixture
def peps_database(cluster: Cluster, peps_template: Database) -> Iterator[Database]:
    """A copy of the filled corpus, for this test alone."""
    with fresh_database(cluster, template=peps_template.name) as database:
        yield database
