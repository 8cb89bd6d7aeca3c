"""The recipe for change requests, run as a CI system runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from policies.snapshot import DEFAULT_FOLDER

ROOT = DEFAULT_FOLDER.parent
RECIPES = ROOT / "deploy/review"


def review(new: Path, out: Path, **variables: str) -> int:
    done = subprocess.run(
        [RECIPES / "policy-review.sh", DEFAULT_FOLDER, new, out],
        env=os.environ | {"GATEWAY": f"{sys.executable} -m gateway", "PYTHONPATH": str(ROOT)}
        | variables,
        capture_output=True, check=False, timeout=100,
    )  # fmt: skip
    return done.returncode


@pytest.mark.skipif(" " in sys.executable, reason="the script splits its command at blanks")
def test_a_widening_change_ends_with_20_and_leaves_its_reports(
    folder: Path, tmp_path: Path
) -> None:
    """A widening that its own cases allow: it is the second reviewer's to judge."""
    issuers = folder / "rules/issuers.yaml"
    issuers.write_text(issuers.read_text().replace("max_age: 900", "max_age: 1800"))
    out = tmp_path / "out"
    assert review(folder, out) == 20
    assert "WIDENING" in (out / "policy-diff.md").read_text()
    assert 'failures="0"' in (out / "policy-verify.xml").read_text()
    assert '"version": "2.1.0"' in (out / "policy-lint.sarif").read_text()


@pytest.mark.skipif(" " in sys.executable, reason="the script splits its command at blanks")
def test_a_gateway_that_tells_no_numbers_costs_no_diff(folder: Path, tmp_path: Path) -> None:
    """The pipeline has a token, the second listener is down: the verdict stands all the same."""
    consents = folder / "rules/consent.csv"
    row = "p, C-CUS-1, customer, support, role:risk_officer, 15m"
    consents.write_text(consents.read_text().replace(f"{row}|1h", row))
    token = tmp_path / "token"
    token.write_text("abc")
    told = {"POLICY_TOKEN_FILE": str(token), "POLICY_ADMIN_URL": "http://127.0.0.1:1", "CI": "true"}
    out = tmp_path / "out"
    assert review(folder, out, **told) == 10
    assert "ttl=1h" in (out / "policy-diff.md").read_text()


def test_the_examples_name_commands_that_exist() -> None:
    """Every ``gateway policy WORD`` of an example is a command, every hook file is YAML."""
    from gateway.cli.policy import app

    known = {command.name for command in app.registered_commands}
    for path in RECIPES.iterdir():
        text = path.read_text()
        assert set(re.findall(r"(?:gateway|\}\") policy (\w+)", text)) <= known, path.name
        if path.suffix in (".yaml", ".yml"):
            assert yaml.safe_load(text)
    for line in (RECIPES / "CODEOWNERS").read_text().splitlines():
        if line and not line.startswith("#"):
            assert (ROOT / line.split()[0].lstrip("/")).exists(), line
