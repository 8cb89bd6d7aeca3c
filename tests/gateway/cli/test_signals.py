"""`gateway metrics` and `gateway signals`: what owners see of gaps, and how they close them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.cli.app import run
from policies.snapshot import Snapshot
from retrieval.embedded import Embedded
from retrieval.stores.activation import activate
from retrieval.stores.roles import POLICY, dsn_for
from tests.gateway.cli.made import clean, environment
from tests.retrieval.signals.desk import Desk, desk
from tests.retrieval.signals.test_gaps import ABOUT, SEEN
from tests.retrieval.world import Artifact, World
from tests.services import Database, VectorService

Ask = Callable[..., tuple[int, str, str]]
WORLD = SEEN + World(artifacts=(Artifact("t:refunds", "Test of refunds", "test"),))


@pytest.fixture
def ask(
    services: Embedded,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Run a command: exit code, output, errors."""
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        return code, *capsys.readouterr()

    return command


@pytest.fixture
def used(database: Database, sidecar: VectorService, snapshot: Snapshot) -> None:
    """A day's use: two gaps that repeat, one hit with an artifact missing, one raw search."""

    async def use() -> None:
        async with desk(database, sidecar, snapshot) as ready:
            await ready.stage.put(WORLD)
            await _use(ready)

    asyncio.run(use())


async def _use(ready: Desk) -> None:
    for who in ("ann", "bob", "eve"):
        await ready.ask(ABOUT, who)
    answer = await ready.ask("refund limits", "ann")
    await ready.say(answer, "sufficient", "ann")
    await ready.settle()


def rows(ask: Ask, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = ask(*arguments, "--format", "json")
    assert (code, err) == (0, "")
    return [json.loads(text) for text in out.splitlines()]


def test_rates_are_shown_by_day_and_audience(ask: Ask, used: None) -> None:
    found = {row["metric"]: row for row in rows(ask, "metrics", "--days", "2")}
    assert len(found) == 8
    hits = found["thread_hit_rate"]
    assert (hits["numerator"], hits["denominator"], hits["rate"]) == (1, 4, 0.25)
    assert hits["audience"] == "customer"
    code, out, _ = ask("metrics")
    assert code == 0
    assert out.splitlines()[0].split() == ["day", "audience", "metric", "rate", "counted", "of"]
    lines = [text.split()[1:] for text in out.splitlines()]
    assert ["customer", "missing_thread_rate", "75.0%", "3", "4"] in lines
    assert ask("metrics", "--audience", "partner") == (0, "nothing was asked\n", "")


def test_gaps_that_found_no_room_are_told_beside_the_rates(ask: Ask, database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute(
            "insert into brain.signal_overflow"
            " select (now() at time zone 'utc')::date, 'partner', 7"
        )
    (held,) = rows(ask, "metrics")
    assert (held["metric"], held["audience"], held["gaps"]) == ("gaps_without_room", "partner", 7)
    assert rows(ask, "metrics", "--audience", "customer") == []
    code, out, _ = ask("metrics")
    assert code == 0
    assert out.splitlines() == [
        "nothing was asked",
        f"{held['day']}: no room for 7 gaps of partner",
    ]


def test_a_gap_is_listed_shown_with_its_evidence_closed_and_reported(ask: Ask, used: None) -> None:
    found = {row["kind"]: row for row in rows(ask, "signals", "list")}
    assert set(found) == {"missing_thread", "search_gap"}
    gap = found["missing_thread"]
    (shown,) = rows(ask, "signals", "show", gap["id"])
    assert shown["where"] == "backlog"
    (evidence,) = shown["evidence"]
    assert (evidence["occurrences"], evidence["subjects"], evidence["classification"]) == (
        3, 3, "absent",
    )  # fmt: skip
    code, out, _ = ask("signals", "show", gap["id"])
    assert code == 0
    assert "absent, met 3 times by 3" in out

    close = ("signals", "close", gap["id"], "--as", "olga", "--reason", "wrote it")
    code, out, _ = ask(*close)
    assert (code, out.splitlines()[0]) == (0, f"closed {gap['id']}: done")
    assert ask(*close)[0] == 1
    assert [row["kind"] for row in rows(ask, "signals", "list")] == ["search_gap"]
    loops = {row["kind"]: row for row in rows(ask, "signals", "report")}
    assert loops["missing_thread"]["close_reason"] == "wrote it"
    assert (loops["missing_thread"]["asked_before"], loops["missing_thread"]["hit_before"]) == (
        3, 0,
    )  # fmt: skip
    assert ask("signals", "report")[0] == 0


def test_items_of_one_gap_are_told_as_such_and_each_is_closed_by_itself(
    ask: Ask, used: None
) -> None:
    """Each table is another desk's work; whoever closes one learns where the rest of it is."""
    places = ("governance", "health", "proposals")
    ids = {
        where: row["id"]
        for where in ("backlog", *places)
        for row in rows(ask, "signals", "list", where)
        if row.get("kind", "missing_thread") == "missing_thread"
    }
    words = [
        text.split() for where in ids for text in ask("signals", "list", where)[1].splitlines()
    ]
    assert len({line[1] for line in words if line[0] in ids.values()}) == 1

    by = ("--as", "olga", "--reason", "wrote it")
    for at, where in enumerate(("backlog", *places)):
        code, out, _ = ask("signals", "close", ids[where], *by)
        told = [f"the same gap is open in {one}: {ids[one]}" for one in places[at:]]
        assert (code, out.splitlines()) == (0, [f"closed {ids[where]}: done", *told])


@pytest.mark.parametrize(
    ("where", "kinds"),
    [
        ("health", {"missing_thread", "search_gap"}),
        ("governance", {"missing_thread", "search_gap"}),
        ("proposals", {None}),
        ("capability", set()),
        ("signals", {"expected_artifact_missing"}),
    ],
)
def test_each_table_is_listed_in_both_forms(
    ask: Ask, used: None, where: str, kinds: set[str | None]
) -> None:
    """Signals that were routed are no longer open ones."""
    assert {row.get("kind") for row in rows(ask, "signals", "list", where)} == kinds
    code, out, _ = ask("signals", "list", where)
    assert code == 0
    assert out == "no gaps\n" if not kinds else len(out.splitlines()) == len(kinds) + 1


def test_no_command_tells_a_word_of_a_question_that_few_have_used(ask: Ask, used: None) -> None:
    """Three subjects are what the desk of these tests takes for many; the rest used no word."""
    told = "".join(
        ask("signals", "list", where, "--all", *form)[1]
        for where in ("backlog", "health", "governance", "capability", "signals")
        for form in ((), ("--format", "json"))
    ).lower()
    for word in ("payroll", "calendar", "refund", "ann", "eve"):
        assert word not in told.replace("channel", "")


def test_the_worker_can_run_apart_and_ends_at_a_signal(
    services: Embedded, database: Database, snapshot: Snapshot, tmp_path: Path
) -> None:
    """Like the one that `gateway serve` starts: it takes the lock and tends the tables."""
    with psycopg.connect(
        dsn_for(POLICY, database.url, database.secret), autocommit=True
    ) as connection:
        activate(connection, snapshot)
    leads = (
        "select 1 from pg_stat_activity where usename = 'gw_metric'"
        " and datname = current_database() and query like '%forget_checks%'"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", "signals", "work"],
        env=clean() | environment(services, database, tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        guard = threading.Timer(60, process.kill)  # a hang must end the test, not the suite
        guard.start()
        try:
            with psycopg.connect(database.url, autocommit=True) as connection:
                while connection.execute(leads).fetchone() is None:
                    assert process.poll() is None
                    time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
        finally:
            guard.cancel()
            process.kill()
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("signals", "show", "nonsense"), 2),
        (("signals", "show", "6f1d5f0e-6a0e-4e0c-9a55-0d9b5f4c7a10"), 1),
        (("signals", "close", "nonsense", "--as", "olga", "--reason", "x"), 2),
        (
            (
                "signals",
                "close",
                "6f1d5f0e-6a0e-4e0c-9a55-0d9b5f4c7a10",
                "--as",
                " ",
                "--reason",
                "x",
            ),
            2,
        ),
        (("signals", "list", "elsewhere"), 2),
    ],
)
def test_what_cannot_be_done_is_one_line_with_a_remedy(
    ask: Ask, arguments: tuple[str, ...], code: int
) -> None:
    assert ask("ingest", "--help")[0] == 0
    found, out, err = ask(*arguments)
    assert (found, out) == (code, "")
    (text,) = err.splitlines()
    assert text.startswith("gateway: error: ")
    assert text.count("; ") >= 1
