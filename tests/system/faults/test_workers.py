"""Several workers behind one address: one is killed, all are drained, one listener tells of them.

Provenance: issue 4, point 7 and "Must hold", the fault matrix.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from retrieval.embedded import Embedded
from retrieval.embedded.processes import command_of
from tests.gateway.cli.made import clean, gateway
from tests.services import Database
from tests.system.faults.asking import BROKEN, Seen, crowd, read, until
from tests.system.faults.portal import EVENT
from tests.system.faults.stand import Stand, standing
from tests.system.faults.test_upstream import begun
from tests.system.test_outages import services_of

pytestmark = pytest.mark.timeout(400)
HELLO = Seen(200, "", b"hello", whole=True)
WORKER = "gateway.compose.worker"


def workers_of(stand: Stand) -> set[int]:
    """The workers of this stand that live."""
    children = Path(f"/proc/{stand.process.pid}/task/{stand.process.pid}/children").read_text()
    return {int(pid) for pid in children.split() if WORKER in (command_of(int(pid)) or "")}


def metrics(stand: Stand) -> list[str]:
    found = httpx.get(f"{stand.admin_url}/metrics", trust_env=False, timeout=20)
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    return found.text.splitlines()


def served_by(stand: Stand) -> dict[str, int]:
    """How many requests to the portal each worker has finished."""
    counts: dict[str, int] = {}
    for line in metrics(stand):
        if line.startswith("gateway_requests_total{") and 'route="portal-customer"' in line:
            worker = line.partition('worker="')[2].partition('"')[0]
            counts[worker] = counts.get(worker, 0) + int(float(line.rpartition(" ")[2]))
    return counts


def replicas(database: Database) -> int:
    with psycopg.connect(database.url) as connection:
        row = connection.execute(
            "select count(*) from gate.replica where seen_at > now() - interval '15 seconds'"
        ).fetchone()
        assert row is not None
        return int(row[0])


def begins(cut: Seen, wanted: Seen) -> bool:
    """Whether an answer is the right one, less its end: killed between its head and its body."""
    return cut.status == wanted.status and wanted.body.startswith(cut.body)


def test_a_killed_worker_costs_its_own_connections_and_comes_back(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Answers are right, or the connection breaks at once or within one; the others go on, the
    address stays ready, the dead one is started again and serves. Then SIGTERM ends all, with 0."""
    with standing(services, tmp_path, "--workers", "2", database=database) as stand:
        before = workers_of(stand)
        assert len(before) == 2
        until(lambda: stand.ready() == (200, "ready"), "readiness")
        assert replicas(database) == 2
        asked = {
            "portal": lambda: stand.get("/portal/customer/home"),
            "scope": lambda: stand.get("/v1/scope"),
        }
        with crowd(asked, callers=4) as found:
            until(lambda: len(served_by(stand)) == 2, "both workers at work")
            os.kill(min(before), signal.SIGKILL)
            count = len(found.seen)
            until(lambda: len(found.seen) > count + 60, "answers of the other one")
            assert stand.ready()[0] == 200
            until(lambda: stand.ready() == (200, "ready"), "the return")
            assert any(line == "gateway_worker_restarts 1" for line in metrics(stand))
            count = len(found.seen)
            until(lambda: len(found.seen) > count + 60, "answers of both")
            assert all(one == found.wanted[name] for name, one in found.seen[count:]), found
        assert found.wrong == [], found
        assert found.codes == set(), found
        cut = [(found.wanted[name], one) for name, one in found.seen if not one.whole]
        assert all(one == BROKEN or begins(one, wanted) for wanted, one in cut), found
        assert found.broken <= 8, found  # what was under way in one process, callers doubled
        after = workers_of(stand)
        assert len(after & before) == 1
        assert len(after) == 2
        until(lambda: set(served_by(stand)) == {"0", "1"}, "both workers at work again")
        stand.process.send_signal(signal.SIGTERM)
        assert stand.process.wait(40) == 0
        assert not any(command_of(pid) for pid in after)


def test_streams_of_a_killed_worker_break_and_those_of_the_other_go_on(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Half an answer never looks whole. The kernel spread sixteen streams over two workers, so
    that each has some (but for one chance in 30,000)."""
    with standing(services, tmp_path, "--workers", "2", database=database) as stand:
        streams = [begun(stand, "events") for _ in range(16)]
        os.kill(min(workers_of(stand)), signal.SIGKILL)
        until(lambda: any("ended (signal 9)" in line for line in stand.log), "its end")
        going_on = [(caller, answer) for caller, answer in streams if more(answer)]
        assert 0 < len(going_on) < len(streams)
        stand.portal.kill()
        assert not any(more(answer) and read(answer).whole for _, answer in streams)
        for caller, answer in streams:
            answer.close()
            caller.close()
        assert stand.alive


def more(answer: http.client.HTTPResponse) -> bool:
    """Whether the stream brings events beyond what may stand in buffers."""
    try:
        return all(answer.read(len(EVENT)) for _ in range(200))
    except (OSError, http.client.HTTPException):
        return False


def test_workers_that_share_rates_give_one_allowance(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Six at once for one caller, whichever worker is asked; both had a hand in it."""
    with standing(
        services,
        tmp_path,
        "--workers",
        "2",
        database=database,
        settings="[route_limits.portal-customer]\nrate = 1\nrate_period_ms = 3600000\nburst = 6",
        limits="shared_rates = true",
    ) as stand:
        seen = [stand.get("/portal/customer/home") for _ in range(30)]
        assert [one.status for one in seen] == [200] * 6 + [429] * 24
        assert {one.code for one in seen[6:]} == {"rate_limited"}
        decided = [one for one in metrics(stand) if one.startswith("gateway_rate_decisions_total{")]
        assert sum(int(one.split()[1]) > 0 for one in decided if 'by="store"' in one) == 2, decided
        assert sum(int(one.split()[1]) for one in decided if 'by="store"' in one) == 30, decided


def test_embedded_services_are_started_once_and_end_with_the_supervisor(
    state: Path, tmp_path: Path
) -> None:
    """Two workers over one pair; commands find it; nothing is left afterwards."""
    settings = {
        "GATEWAY_STATE": str(state),
        "GATEWAY_EMBEDDER": "hashing-64",
        "GATEWAY_LISTEN": "127.0.0.1:0",
        "GATEWAY_ADMIN_LISTEN": "127.0.0.1:0",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve", "--workers", "2"],
        env=clean() | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        while told.startswith("{"):
            told = process.stderr.readline()
        assert told.startswith("gateway: listening on "), told
        assert gateway("events", **settings).code == 0
        held = gateway("serve", **settings)
        assert (held.code, held.lines[0].split()[2]) == (4, "state_held:")
        process.terminate()
        assert process.wait(40) == 0
        process.stderr.read()
    assert services_of(state) == set()


def test_a_killed_supervisor_takes_its_workers_along(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """No worker is left that nobody watches, and the port is free."""
    with standing(services, tmp_path, "--workers", "2", database=database) as stand:
        workers = workers_of(stand)
        assert len(workers) == 2
        stand.process.kill()
        stand.process.wait()
        until(lambda: not any(command_of(pid) for pid in workers), "the end of the workers")
        address = urlsplit(stand.url)
        with socket.create_server((str(address.hostname), address.port or 0)):
            pass


def test_what_stops_a_worker_stops_the_start_with_its_reason(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """One line, the code of the fault, nothing left running."""
    with (
        pytest.raises(AssertionError, match="unknown_upstream"),
        standing(
            services,
            tmp_path,
            "--workers",
            "2",
            database=database,
            settings='[upstreams.nobody]\naddress = "http://127.0.0.1:1"',
        ),
    ):
        pass
