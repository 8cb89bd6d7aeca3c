"""``gateway policy``: exit codes and formats, which scripts rely on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gateway.cli.app import run
from policies.snapshot import DEFAULT_FOLDER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the default policy folder."""
    for part in ("rules", "models", "mappings", "cases"):
        shutil.copytree(DEFAULT_FOLDER / part, tmp_path / "policy" / part)
    return tmp_path / "policy"


def replace(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


def policy(*arguments: object) -> int:
    return run(["policy", *map(str, arguments)])


def test_verify_ends_with_0_4_or_3(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All holds; a case does not; the policy cannot be served at all."""
    command = ("verify", "--folder", folder)
    assert policy(*command, "--format", "junit") == 0
    assert 'failures="0"' in capsys.readouterr().out
    replace(folder, "cases/audiences.yaml", "allowed: 56", "allowed: 57")
    assert policy(*command) == 4
    assert "reads 56, not 57" in capsys.readouterr().out
    replace(folder, "rules/units.csv", "U-CUS-1, customer", "U-CUS-1, custmer")
    assert policy(*command) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "rules/units.csv:" in captured.err


def test_a_format_that_a_report_does_not_have_is_wrong_usage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert policy("diff", folder, folder, "--format", "junit") == 2
    assert "there is no `junit` of this" in capsys.readouterr().err
    assert policy("diff", folder, folder, "--format", "html") == 2


def test_diff_ends_with_0_10_20_or_3(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert policy("diff", folder, DEFAULT_FOLDER) == 0
    assert capsys.readouterr().out == "no difference\n"
    replace(folder, "rules/issuers.yaml", "max_age: 3600", "max_age: 600")
    assert policy("diff", DEFAULT_FOLDER, folder, "--format", "markdown") == 10
    assert capsys.readouterr().out.startswith("## policy ")
    assert policy("diff", folder, DEFAULT_FOLDER, "--format", "json") == 20
    assert json.loads(capsys.readouterr().out)["direction"] == "widening"
    replace(folder, "rules/issuers.yaml", "max_age: 600", "max_age: 6000000")
    assert policy("diff", DEFAULT_FOLDER, folder) == 3
    assert "out_of_range" in capsys.readouterr().err
    assert policy("diff", "no-such-thing", folder) == 2
    assert "no_revision" in capsys.readouterr().err


def test_lint_ends_with_0_or_with_4_when_strict_or_with_3(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning may stand; a dead rule is what the loader refuses, told by lint with the rest."""
    replace(folder, "rules/agents.csv", "p, G-INC-1,", "# p, G-INC-1,")
    assert policy("lint", "--folder", folder) == 0
    assert policy("lint", "--folder", folder, "--strict", "--format", "sarif") == 4
    assert "unreachable_profile" in capsys.readouterr().out
    replace(
        folder, "rules/units.csv", "U-X-RAW, customer|partner|employee, all", "U-X-RAW, all, all"
    )
    assert policy("lint", "--folder", folder) == 3
    assert "dead_rule" in capsys.readouterr().out


def test_fmt_check_ends_with_4_and_fmt_writes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = folder / "rules/units.csv"
    before = rules.read_text()
    rules.write_text(before.replace("p, U-CUS-1, customer,", "p,U-CUS-1 ,  customer,"))
    assert policy("fmt", "--check", "--folder", folder) == 4
    assert capsys.readouterr().out == "would format rules/units.csv\n"
    assert policy("fmt", "--folder", folder) == 0
    assert rules.read_text() == before
    assert policy("fmt", "--check", "--folder", folder) == 0


def test_explain_tells_the_rule_or_refuses_the_word(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = ["public", "published", "published", "high", "enacted", "faq"]
    command = ("explain", "--folder", folder, "customer", *state)
    assert policy(*command) == 0
    assert "denied by U-X-RISK at rules/units.csv:" in capsys.readouterr().out
    assert policy(*command, "--consent", "granted", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["deciding"][0][0] == "U-CUS-2"
    assert policy("explain", "--folder", folder, "custmer", *state) == 2
    assert "did you mean `customer`" in capsys.readouterr().err


def test_matrix_and_compile_write_what_was_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    starts = {"json": "{", "svg": "<svg "}
    for form, start in starts.items():
        assert policy("matrix", "--folder", folder, "--format", form) == 0
        assert capsys.readouterr().out.startswith(start)
    starts = {"sql": "-- policy ", "qdrant": '{"customer": '}
    for form, start in starts.items():
        assert policy("compile", "--folder", folder, "--emit", form, "--tenant", "acme") == 0
        assert capsys.readouterr().out.startswith(start)
    (tmp_path / "no-marks.md").write_text("# A handbook\n")
    assert policy("matrix", "--folder", folder, "--into", tmp_path / "no-marks.md") == 2
    assert "no_marks" in capsys.readouterr().err
