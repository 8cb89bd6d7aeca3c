"""A consent is given under the policy in force, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli.app import run
from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.services import Database

RECORD = {
    "sort": "unit", "address": "handbook/leave", "title": "Leave", "body": "Ask in writing.",
    "visibility": "employee", "readiness": "approved", "publication_state": "unpublished",
    "risk_class": "high", "authority": "enacted", "kind": "policy", "lifecycle_stage": "law",
    "tenant": "*", "jurisdiction": "*",
}  # fmt: skip
GRANT = [
    "consent", "grant", "--purpose", "audit", "--audience", "employee", "--issuer", "idp:staff",
    "--sub", "alice", "--ttl", "1h", "--approver", "bob", "--approver-role", "role:risk_officer",
    "--unit", "handbook/leave",
]  # fmt: skip


def test_consent_under_another_policy_than_the_one_in_force_is_refused(
    services: Embedded,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Regression: under the demo's overlay it was *granted* to an id that nobody has."""
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)
    source = tmp_path / "units.jsonl"
    source.write_text(json.dumps(RECORD) + "\n")
    assert run(["ingest", str(source), "--mapping", "native"]) == 0
    overlay = tmp_path / "overlay"
    (overlay / "rules").mkdir(parents=True)
    rules = (DEFAULT_FOLDER / "rules" / "consent.csv").read_text()
    (overlay / "rules" / "consent.csv").write_text(f"{rules}# an edit that was not activated\n")
    capsys.readouterr()

    assert run([*GRANT, "--overlay", str(overlay)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gateway: error: policy_differs: ")
    assert run(["consent", "list"]) == 0
    assert capsys.readouterr().out == "no consents\n"
    assert run(GRANT) == 0
