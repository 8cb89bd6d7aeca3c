"""The served gateway, as its users start it, behind a real proxy: wiring, record and self-test."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.decisions.reader import read_records
from policies.decision import Effect
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment, gateway
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.proxies.client import exchange
from tests.system.proxies.conftest import PEERS
from tests.system.proxies.kinds import KINDS, proxying
from tests.system.proxies.recorder import Recorder
from tests.system.serving import believing, serving

pytestmark = pytest.mark.timeout(300)


def test_served_gateway_decides_records_and_is_proven(
    services: Embedded, database: Database, tmp_path: Path, recorder: Recorder
) -> None:
    """Issue 4, item 6: the endpoint stands on the data listener of `gateway serve`."""
    KINDS["nginx"].found()
    recorder.reset()
    issuers = Issuers()
    policy = believing(issuers, tmp_path)
    (policy / "rules" / "trusted_peers.yaml").write_text(PEERS)
    log = tmp_path / "decisions.jsonl"
    env = environment(services, database, tmp_path) | {
        "GATEWAY_POLICY": str(policy),
        "GATEWAY_DECISION_LOG_FILE": str(log),
    }
    folder = tmp_path / "nginx"
    folder.mkdir()
    with serving(env) as url:
        served = int(url.rpartition(":")[2])
        with proxying(KINDS["nginx"], folder, gateway=served, upstream=recorder.port) as port:
            told = gateway("selftest", "--through", f"http://127.0.0.1:{port}", **env)
            assert (told.code, told.lines) == (0, [])
            recorder.reset()
            head = "GET /portal/partner/home HTTP/1.1\r\nHost: portal.test\r\nConnection: close"
            line = f"Authorization: Bearer {issuers.token('partner')}"
            assert exchange(port, f"{head}\r\n{line}\r\n\r\n".encode()).status == 200
            assert exchange(port, f"{head}\r\n\r\n".encode()).status == 401
            (arrived,) = recorder.arrived
    found = [one for one in read_records(log.read_text().splitlines()) if one.audience == "partner"]
    (record,) = [one for one in found if one.request_id == arrived.one("x-request-id")]
    assert (record.surface, record.route, record.effect) == (
        "forward_auth",
        "portal-partner",
        Effect.ALLOW,
    )
