"""One gateway that believes proxies on 127.0.0.1, one upstream that records, each proxy once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.ingress.limits import Limits
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from tests.gateway.stage import Reply, Stage
from tests.gateway.tokens import Issuers
from tests.system.proxies.client import exchange
from tests.system.proxies.kinds import KINDS, Kind, proxying
from tests.system.proxies.recorder import Arrived, Recorder

PEERS = """trusted_peers:
  proxies:
    networks: [127.0.0.1/32]
    headers: [x-forwarded-for, x-forwarded-proto, x-forwarded-host, x-forwarded-method,
              x-forwarded-uri, x-original-method, x-original-uri, x-original-host,
              x-ext-authz-method, x-ext-authz-path, x-ext-authz-host]
"""
PARTNERS = "    upstream: partner-portal\n"
ORIGINS = "    origins: [https://portal.example, absent]\n"


@dataclass
class Front:
    """A proxy in front of the recording upstream, the gateway deciding."""

    kind: Kind
    port: int
    stage: Stage
    recorder: Recorder

    def ask(self, raw: bytes) -> Reply:
        """The proxy's answer to exactly these bytes; status 0 when it only closes."""
        return exchange(self.port, raw)

    def get(self, target: str, *lines: str, method: str = "GET", body: bytes = b"") -> Reply:
        """The proxy's answer to one request with these header lines."""
        head = [f"{method} {target} HTTP/1.1", "Host: portal.test", "Connection: close", *lines]
        return self.ask("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)

    @property
    def arrived(self) -> list[Arrived]:
        return self.recorder.arrived


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    """The upstream of every proxy."""
    with Recorder() as recorder:
        yield recorder


@pytest.fixture(scope="session")
def proxied_issuers() -> Issuers:
    return Issuers()


@pytest.fixture(scope="session")
def believing_proxies(
    proxied_issuers: Issuers, tmp_path_factory: pytest.TempPathFactory
) -> Snapshot:
    """The default policy with issuers of the tests, and one peer that may ask in any dialect."""
    overlay = tmp_path_factory.mktemp("overlay")
    proxied_issuers.write(overlay)
    rules = overlay / "rules"
    (rules / "trusted_peers.yaml").write_text(PEERS)
    routes = (DEFAULT_FOLDER / "rules" / "routes.yaml").read_text()
    assert routes.count(PARTNERS) == 1
    (rules / "routes.yaml").write_text(routes.replace(PARTNERS, PARTNERS + ORIGINS))
    return load(overlay=overlay)


@pytest.fixture(scope="session")
def deciding(believing_proxies: Snapshot, proxied_issuers: Issuers) -> Iterator[Stage]:
    """The gateway that the proxies ask."""
    with Stage(believing_proxies, proxied_issuers, Limits()) as stage:
        yield stage


@pytest.fixture(scope="session", params=list(KINDS))
def fronted(
    request: pytest.FixtureRequest,
    deciding: Stage,
    recorder: Recorder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Front]:
    """Each real proxy, running."""
    kind = KINDS[request.param]
    folder = tmp_path_factory.mktemp(kind.name)
    with proxying(kind, folder, gateway=deciding.port, upstream=recorder.port) as port:
        yield Front(kind, port, deciding, recorder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def front(fronted: Front) -> Front:
    """A running proxy, with nothing recorded."""
    fronted.stage.reset()
    fronted.recorder.reset()
    return fronted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
