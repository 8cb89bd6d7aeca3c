"""``gateway policy shadow``: begin, read and end a run on a real database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import psycopg
import pytest

from gateway.cli.app import run
from gateway.decisions.facts import PerClass
from gateway.shadow.keeping import ShadowKeeper
from gateway.shadow.observer import Shadow
from policies.release.artefact import contents_of
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from retrieval.embedded import Embedded
from retrieval.stores.activation import activate
from retrieval.stores.roles import POLICY, WATCH, dsn_for
from tests.gateway.cli.made import environment
from tests.gateway.shadow.made import (
    EMPLOYEES_READ_NO_DRAFTS,
    Held,
    class_id,
    copied,
    request,
)
from tests.services import Database

WIDER = (
    "rules/units.csv",
    "p, U-CUS-1, customer, public, published, published, low|standard",
    "p, U-CUS-1, customer, public|partner, published, published, low|standard",
)


@pytest.fixture(autouse=True)
def settings(
    services: Embedded, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands' environment: this test's database, with the shipped policy active in it."""
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)
    with psycopg.connect(dsn_for(POLICY, database.url, database.secret)) as connection:
        snapshot = load()
        activate(connection, snapshot)
        files = {path: text.decode() for path, text in contents_of(DEFAULT_FOLDER).contents.items()}
        connection.execute(
            "insert into gate.policy_release (generation, environment, digest, change, files)"
            " values (1, 'development', %s, 'widening', %s)",
            [snapshot.digest, json.dumps(files)],
        )


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    return copied(tmp_path / "candidate", EMPLOYEES_READ_NO_DRAFTS, WIDER)


def started(folder: Path, *options: str) -> int:
    return run(["policy", "shadow", "start", str(folder), "--reason", "a trial", *options])


def counted(database: Database, snapshot: Snapshot, candidate: Path) -> None:
    """What a gateway would have kept: an employee was shown two drafts."""
    shadow = Shadow(Held(load(candidate)))
    shown = {(class_id(snapshot, readiness="approved"), False): PerClass(allowed=2)}
    shadow.observe(request(snapshot, shown), route="retrieve", method="POST")
    keeper = ShadowKeeper(shadow, dsn_for(WATCH, database.url, database.secret))
    assert asyncio.run(keeper.flush())


def test_a_run_is_begun_read_and_ended(
    database: Database, snapshot: Snapshot, candidate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rules on both sides, denominators, a sample, and what would open but cannot be seen."""
    assert started(candidate) == 0
    digest = load(candidate).digest
    assert f"candidate {digest[:12]} beside {snapshot.digest[:12]}" in capsys.readouterr().out
    assert run(["policy", "shadow", "show"]) == 0
    told = capsys.readouterr().out
    assert "nothing compared" in told
    assert "every 5 s: ask again after some requests" in told
    counted(database, snapshot, candidate)
    assert run(["policy", "shadow", "show"]) == 0
    told = capsys.readouterr().out
    assert "ask again" not in told
    assert f"shadow {digest[:12]}: would narrow" in told
    assert "reason: a trial" in told
    assert "2x unit employee: U-EMP-1 -> no rule" in told
    assert "What opens by the tables" in told
    assert "customer: " in told
    assert "U-CUS-1 edited" in told
    assert "unit       employee  2         2" in told
    assert run(["policy", "shadow", "stop"]) == 0
    assert "run 1 of candidate" in capsys.readouterr().out
    assert run(["policy", "shadow", "stop"]) == 0
    assert "no candidate is running" in capsys.readouterr().out
    assert run(["policy", "shadow", "show", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["compared"], report["disagreed"]) == (4, 2)
    (example,) = report["examples"]
    assert example["class_ids"] == [class_id(snapshot, readiness="approved")]
    assert {"subject", "claims", "unit_ids"}.isdisjoint(example)


def test_a_second_candidate_is_refused_while_one_runs(
    candidate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert started(candidate) == 0
    assert started(DEFAULT_FOLDER) == 1
    assert "shadow_running: candidate `" in capsys.readouterr().err


def test_an_invalid_candidate_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = copied(tmp_path / "spoilt", ("rules/units.csv", "employee, public", "emplyee, public"))
    assert started(spoilt) == 3
    assert "rules/units.csv:" in capsys.readouterr().err
    assert run(["policy", "shadow", "show"]) == 1
    assert started(DEFAULT_FOLDER, "--sample", "21") == 2


def test_rules_of_a_live_policy_that_is_not_at_hand_stay_unknown(
    database: Database, snapshot: Snapshot, candidate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told, instead of guessed from another policy."""
    assert started(candidate) == 0
    counted(database, snapshot, candidate)
    with psycopg.connect(database.url) as admin:
        admin.execute("set session_replication_role = replica")
        admin.execute("delete from gate.policy_release")
    capsys.readouterr()
    assert run(["policy", "shadow", "show"]) == 0
    told = capsys.readouterr().out
    assert f"the files of policy {snapshot.digest[:12]} are not at hand" in told
    assert "(policy not at hand) -> (policy not at hand)" in told
