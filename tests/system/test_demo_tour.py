"""The demo as a newcomer runs it: a process of its own, an empty state folder, every claim.

The tour's expected sets come from the corpus files (``deploy/demo/expected.py``), so a green
run says: for every reader, the units that the gateway serves are those that the rules name.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psycopg
import pytest

from deploy.demo.kept import alone
from policies.snapshot import Snapshot
from retrieval.embedded import start
from retrieval.schema.migrate import migrate
from tests.services import state_folder

ROOT = Path(__file__).resolve().parents[2]


def demo(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.demo", "--once", "--state", str(state), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(600)
def test_the_tour_holds_on_an_empty_machine_and_again_on_what_it_left() -> None:
    """Mandated by the issue: `--once` runs the tour; ingest is idempotent; data is kept."""
    with state_folder() as state:
        first = demo(state, "--every-unit")
        assert first.returncode == 0, first.stdout + first.stderr
        assert "0 broken" in first.stdout
        assert "✗" not in first.stdout

        identities = json.loads((state / "identities.json").read_text())
        assert {"customer", "partner", "employee", "agent-incident"} <= identities.keys()
        assert (state / "identities.json").stat().st_mode & 0o077 == 0

        second = demo(state)
        assert second.returncode == 0, second.stdout + second.stderr
        assert "corpus: 0 new, 0 changed" in second.stdout
        # same ports, hence same issuers, digest and people
        assert policy_line(second) == policy_line(first)


def policy_line(run: subprocess.CompletedProcess[str]) -> str:
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("policy ")]
    return line


@pytest.mark.timeout(600)
def test_a_folder_of_another_version_is_told_and_begun_anew_on_request(snapshot: Snapshot) -> None:
    """Regression: it said `restore the file`, which whoever runs a demo cannot do."""
    with state_folder() as state:
        with start(state) as pair:
            migrate(pair.database_url, pair.database_secret, snapshot)
            with psycopg.connect(pair.database_url) as connection:
                connection.execute("update migration.applied set sha256 = 'x' where number = 130")
        refused = demo(state)
        assert refused.returncode == 4
        (line,) = refused.stderr.splitlines()
        assert line.startswith(f"demo: error: state_of_another_version: the data in `{state}`")
        assert "make demo ARGS=--fresh" in line
        anew = demo(state, "--fresh")
        assert anew.returncode == 0, anew.stdout + anew.stderr
        assert "✗" not in anew.stdout


@pytest.mark.timeout(120)
def test_a_demo_that_cannot_start_says_so_in_one_line(tmp_path: Path) -> None:
    """The state folder is a file: a reason, a remedy and an exit code, no stack."""
    state = tmp_path / "state"
    state.write_text("not a folder")
    run = demo(state)
    assert run.returncode not in {0, 1}
    assert len(run.stderr.strip().splitlines()) == 1
    assert run.stderr.startswith("demo: error: ")


@pytest.mark.timeout(120)
def test_a_second_demo_leaves_the_files_of_the_first_one_alone() -> None:
    """Regression: it wrote ports and identities anew before it found the folder in use."""
    with state_folder() as state, alone(state / "demo"):
        identities = state / "identities.json"
        identities.write_text("of the first demo")
        traces = state / "demo" / "traces.jsonl"
        traces.write_text("of the first demo")
        run = demo(state)
        assert run.returncode == 4
        assert run.stderr.startswith("demo: error: state_held: another demo runs in ")
        assert identities.read_text() == traces.read_text() == "of the first demo"


@pytest.mark.timeout(300)
def test_a_demo_that_stays_up_is_ready_in_every_part() -> None:
    """Regression: nothing drew rates and gaps, and readiness stayed `degraded`."""
    with state_folder() as state:
        command = [sys.executable, "-m", "deploy.demo", "--state", str(state)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            try:
                assert any("It stays up" in line for line in run.stdout)
                admin = json.loads((state / "gateway.json").read_text())["admin_url"]
                deadline = time.monotonic() + 60
                while (found := httpx.get(f"{admin}/readyz").json())["status"] != "ready":
                    assert time.monotonic() < deadline, found
                assert found["checks"]["signals"] == "ok"
            finally:
                run.send_signal(signal.SIGINT)
            assert "all is right" in run.stdout.read()
        assert run.returncode == 0
