"""One full loop over HTTP and the command line: usage, gap, enrichment, better retrieval.

Provenance: seed 4.14; issue 5, point 8. The gateway and its worker are processes of their own,
the webhook's receiver is a server.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.cli.app import run
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.gateway.tokens import Issuers
from tests.retrieval.signals.test_webhook import SECRET, receiver
from tests.services import Database
from tests.system.callers import Caller, retrieve
from tests.system.composed import thread, unit
from tests.system.serving import believing, serving

pytestmark = pytest.mark.timeout(300)
QUESTION = "zeppelin mooring schedule"
WAIT_S = 60
REFUNDS = unit("handbook/refunds", "Refunds take thirty days.")
MOORING: tuple[object, ...] = (
    unit("handbook/mooring", "The zeppelin mooring schedule of this year."),
    unit("handbook/mast", "Who climbs the mooring mast."),
    thread("threads/mooring", "Zeppelin mooring schedule"),
    *(
        {"sort": "membership", "thread": "threads/mooring", "unit": one, "role": "canonical"}
        for one in ("handbook/mooring", "handbook/mast")
    ),
)

Command = Callable[..., str]


@pytest.fixture
def command(
    services: Embedded,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Runs a command of this test's gateway; what it says."""
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)

    def inside(*arguments: str) -> str:
        capsys.readouterr()
        code = run(list(arguments))
        out, err = capsys.readouterr()
        assert (code, err) == (0, ""), out
        return out

    return inside


def rows(command: Command, *arguments: str) -> list[dict[str, Any]]:
    """What a command says with `--format json`."""
    return [json.loads(text) for text in command(*arguments, "--format", "json").splitlines()]


def ingest(command: Command, folder: Path, *records: object) -> None:
    source = folder / "corpus.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    command("ingest", str(source), "--mapping", "native")


def modes(url: str, issuers: Issuers, times: int) -> list[str]:
    """How the question is answered for so many customers, one after the other."""

    async def ask() -> list[str]:
        found = []
        for number in range(times):
            token = issuers.token("customer", sub=f"caller-{number}")
            reply = await Caller(url, token).ask(retrieve(QUESTION))
            assert reply.status == 200, reply.body
            found.append(reply.json()["mode"])
        return found

    return asyncio.run(ask())


def until_it_listens(database: Database) -> None:
    """The worker is a process of its own: the gateway does not wait for it."""
    listens = (
        "select 1 from pg_stat_activity where usename = 'gw_signal'"
        " and datname = current_database() and query = 'listen gw_inquiry'"
    )
    ends_at = time.monotonic() + WAIT_S
    with psycopg.connect(database.url, autocommit=True) as connection:
        while connection.execute(listens).fetchone() is None:
            assert time.monotonic() < ends_at, "no worker came up"
            time.sleep(0.05)


def rate(command: Command, metric: str) -> tuple[int, int]:
    (row,) = [one for one in rows(command, "metrics") if one["metric"] == metric]
    return row["numerator"], row["denominator"]


def test_what_callers_miss_becomes_a_thread_and_the_rate_moves(
    command: Command, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mandated by issue 5, point 8."""
    issuers = Issuers()
    arrived: queue.Queue[dict[str, Any]] = queue.Queue()
    monkeypatch.setenv("GATEWAY_POLICY", str(believing(issuers, tmp_path)))
    with receiver(204, told=arrived) as there:
        config = Path(os.environ["GATEWAY_CONFIG"])
        config.write_text(
            f"{config.read_text()}[signals]\nperiod_ms = 200\nrepeated = 3\n"
            f'webhook_url = "{there.url}"\nwebhook_secret = "{SECRET.get_secret_value()}"\n'
        )
        ingest(command, tmp_path, REFUNDS)
        env = {name: text for name, text in os.environ.items() if name.startswith("GATEWAY_")}
        with serving(env) as url:
            until_it_listens(database)
            # usage, and a gap
            assert modes(url, issuers, 3) == ["fallback"] * 3
            kinds = {arrived.get(timeout=WAIT_S)["kind"] for _ in range(6)}
            assert kinds == {"missing_thread", "search_gap"}
            assert rate(command, "thread_hit_rate") == (0, 3)
            assert rate(command, "missing_thread_rate") == (3, 3)
            (proposal,) = rows(command, "signals", "list", "proposals")
            assert (proposal["occurrences"], proposal["subjects"]) == (3, 3)
            # enrichment
            ingest(command, tmp_path, REFUNDS, *MOORING)
            for gap in rows(command, "signals", "list", "backlog"):
                command("signals", "close", gap["id"], "--as", "olga", "--reason", "written")
            # better retrieval
            assert modes(url, issuers, 3) == ["single"] * 3
            assert rate(command, "thread_hit_rate") == (3, 6)
            loops = {loop["kind"]: loop for loop in rows(command, "signals", "report")}
    loop = loops["missing_thread"]
    assert (loop["asked_before"], loop["hit_before"]) == (3, 0)
    assert (loop["asked_after"], loop["hit_after"], loop["met_after"]) == (3, 3, 0)
    assert (loop["state"], len(loop["threads"])) == ("done", 1)
