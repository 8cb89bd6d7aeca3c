"""``gateway policy replay``: exit codes, formats, and records that cannot be replayed."""

from __future__ import annotations

import io
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gateway.cli.app import run
from gateway.decisions.facts import PerClass
from policies.snapshot import DEFAULT_FOLDER, Snapshot
from tests.gateway.shadow.made import (
    EMPLOYEES_READ_NO_DRAFTS,
    class_id,
    copied,
    line_of,
    request,
)
from tests.policies.review.test_revisions import git

BASE = str(DEFAULT_FOLDER)


@pytest.fixture
def narrower(tmp_path: Path) -> str:
    return str(copied(tmp_path / "narrower", EMPLOYEES_READ_NO_DRAFTS))


@pytest.fixture
def log(tmp_path: Path, snapshot: Snapshot) -> Path:
    """Two requests of employees: one was shown two drafts, one of another policy."""
    shown = {(class_id(snapshot, readiness="approved"), False): PerClass(allowed=2)}
    line = line_of(request(snapshot, shown))
    other = json.dumps(json.loads(line) | {"policy_digest": "0" * 64})
    path = tmp_path / "decisions.jsonl"
    path.write_text(f'{line}{{"message": "access"}}\n{other}\n')
    return path


def test_a_narrowing_candidate_ends_with_10_and_names_rule_and_state(
    log: Path, narrower: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", "replay", str(log), narrower, "--base", BASE]) == 10
    told = capsys.readouterr().out
    assert "would narrow" in told
    assert "2x unit employee: U-EMP-1 -> no rule" in told
    assert "readiness=approved" in told
    assert "not replayed: 1x recorded under another policy than the base" in told
    assert "other lines, which are no records: 1" in told


def test_the_same_policy_ends_with_0_and_the_opposite_edit_with_20(
    tmp_path: Path, log: Path, narrower: str, snapshot: Snapshot
) -> None:
    """Under the narrower policy a draft was kept back; the shipped one would show it."""
    assert run(["policy", "replay", str(log), BASE, "--base", BASE]) == 0
    kept = {(class_id(snapshot, readiness="approved"), False): PerClass(denied=1)}
    from policies.snapshot import load

    back = tmp_path / "back.jsonl"
    back.write_text(line_of(request(load(Path(narrower)), kept)))
    assert run(["policy", "replay", str(back), BASE, "--base", narrower]) == 20


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_base_may_be_a_revision_of_the_clone_that_holds_the_candidate(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(tmp_path / "clone")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    file, old, new = EMPLOYEES_READ_NO_DRAFTS
    (folder / file).write_text((folder / file).read_text().replace(old, new))
    assert run(["policy", "replay", str(log), str(folder), "--base", "HEAD"]) == 10
    assert "2x unit employee: U-EMP-1 -> no rule" in capsys.readouterr().out
    assert run(["policy", "replay", str(log), str(folder), "--base", "no-such"]) == 2
    assert "no_revision" in capsys.readouterr().err


def test_a_caller_who_would_move_counts_as_widening(tmp_path: Path, log: Path) -> None:
    """Another reach is not a smaller one."""
    edit = ("rules/audience.csv", "grp:staff, employee, allow", "grp:staff, partner, allow")
    moved = copied(tmp_path / "moved", edit)
    assert run(["policy", "replay", str(log), str(moved), "--base", BASE]) == 20


def test_without_the_base_the_states_are_told_by_number(
    log: Path, narrower: str, snapshot: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", "replay", str(log), narrower]) == 10
    told = capsys.readouterr().out
    assert "without --base" in told
    assert f"class {class_id(snapshot, readiness='approved')} consent=none" in told


def test_json_and_junit_hold_the_whole_report(
    log: Path, narrower: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["policy", "replay", str(log), narrower, "--base", BASE, "--format"]
    assert run([*options, "json"]) == 10
    told = json.loads(capsys.readouterr().out)
    assert (told["records"], told["replayed"], told["other_lines"]) == (2, 1, 1)
    (group,) = told["found"]["groups"]
    assert (group["point"], group["way"], group["seen"]) == ("unit", "closes", 2)
    assert run([*options, "junit"]) == 10
    suites = ET.fromstring(capsys.readouterr().out)  # noqa: S314 - our own output
    cases = [*suites.iter("testcase")]
    assert (suites.get("failures"), len(cases)) == ("1", 4)
    assert not any("line" in (case.get("name") or "") or case.get("line") for case in cases)
    assert run([*options, "markdown"]) == 10
    assert capsys.readouterr().out.startswith("## replay ")


def test_a_log_of_which_nothing_can_be_decided_anew_shows_nothing(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ends with 4: a pipeline that fed it a masked, empty or foreign log must not turn green."""
    masked = tmp_path / "masked.jsonl"
    line = json.loads(log.read_text().splitlines()[0])
    masked.write_text(json.dumps(line | {"claims": ["***"], "masked": ["claims"]}) + "\n")
    assert run(["policy", "replay", str(masked), BASE, "--base", BASE]) == 4
    out, err = capsys.readouterr()
    assert "nothing compared" in out
    assert "nothing_replayed: none of 1 records" in err
    (tmp_path / "empty.jsonl").write_text("")
    assert run(["policy", "replay", str(tmp_path / "empty.jsonl"), BASE]) == 4


def test_records_can_be_piped(log: Path, narrower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    assert run(["policy", "replay", "-", narrower]) == 10


def test_what_is_no_record_or_no_policy_ends_with_3(
    tmp_path: Path, log: Path, narrower: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the line; a record that was cut short is none."""
    log.write_text(log.read_text()[:-20])
    assert run(["policy", "replay", str(log), narrower]) == 3
    assert f"record_invalid: {log}:3:" in capsys.readouterr().err
    spoilt = copied(tmp_path / "spoilt", ("rules/units.csv", "employee, public", "emplyee, public"))
    assert run(["policy", "replay", str(log), str(spoilt)]) == 3
    assert run(["policy", "replay", str(tmp_path / "none"), narrower]) == 2
