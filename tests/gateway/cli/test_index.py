"""``gateway index``: the numbers, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.cli.app import run
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.gateway.cli.test_labels import RECORD
from tests.services import Database


def test_a_collection_is_checked_and_filled_from_the_truth(
    services: Embedded,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)
    source = tmp_path / "units.jsonl"
    source.write_text(json.dumps(RECORD) + "\n")
    assert run(["ingest", str(source), "--mapping", "native"]) == 0
    capsys.readouterr()
    assert run(["index", "check"]) == 0
    assert ": 1 points equal the truth, 0 stale, 0 units missing, 0 points not ours" in (
        capsys.readouterr().out
    )
    fresh = f"t-{uuid4().hex[:12]}"
    assert run(["index", "check", "--collection", fresh]) == 4
    assert capsys.readouterr().err.startswith("gateway: error: index_unavailable: ")
    assert run(["index", "rebuild", "--collection", fresh, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"collection": fresh, "equal": 1, "stale": 0, "missing": 0, "strangers": 0}
