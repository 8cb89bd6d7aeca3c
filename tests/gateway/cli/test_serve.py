"""`gateway serve` as a process: it says where it listens, logs lines and ends on a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from retrieval.embedded import Embedded
from tests.gateway.cli.made import clean, environment
from tests.services import Database


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_serving_gateway_cleanly(
    services: Embedded, database: Database, tmp_path: Path, sent: signal.Signals
) -> None:
    """Exit 0, every line on standard output is one request, and nothing is left to be found."""
    env = environment(services, database, tmp_path)
    config = Path(env["GATEWAY_CONFIG"])
    config.write_text(config.read_text().replace("access_log = false", "access_log = true"))
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve", "--no-embedded"],
        env=clean() | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        guard = threading.Timer(60, process.kill)  # a hang must end the test, not the suite
        guard.start()
        try:
            assert process.stderr is not None
            told = process.stderr.readline()
            url = told.removeprefix("gateway: listening on ").split(" ")[0]
            assert httpx.get(f"{url}/v1/scope?token=secret", trust_env=False).status_code >= 400
            assert (Path(env["GATEWAY_STATE"]) / "gateway.json").exists()
            process.send_signal(sent)
            out, err = process.communicate()
        finally:
            guard.cancel()
            process.kill()
    assert (process.returncode, err) == (0, "")
    (line,) = out.splitlines()
    assert json.loads(line)["http.response.status_code"] >= 400
    assert "secret" not in line
    assert not (Path(env["GATEWAY_STATE"]) / "gateway.json").exists()
