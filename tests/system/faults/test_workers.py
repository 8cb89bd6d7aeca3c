"""Several workers behind one address: one is killed, all are drained, one listener tells of them.

Provenance: issue 4, point 7 and "Must hold", the fault matrix.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from retrieval.embedded import Embedded
from retrieval.embedded.processes import command_of
from tests.services import Database
from tests.system.faults.asking import BROKEN, Seen, crowd, until
from tests.system.faults.stand import Stand, standing

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


def test_a_killed_worker_costs_its_own_connections_and_comes_back(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Answers are right or the connection breaks; the others go on, the address stays ready, the
    dead one is started again and serves. Then SIGTERM ends all of them, with 0."""
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
        assert {one for _, one in found.seen if not one.whole} <= {BROKEN}, found
        assert found.broken <= 8, found  # what was under way in one process, callers doubled
        after = workers_of(stand)
        assert len(after & before) == 1
        assert len(after) == 2
        until(lambda: set(served_by(stand)) == {"0", "1"}, "both workers at work again")
        stand.process.send_signal(signal.SIGTERM)
        assert stand.process.wait(40) == 0
        assert not any(command_of(pid) for pid in after)


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
