"""Reviewers' cases and the command that runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policies import casework
from policies.__main__ import main
from policies.errors import InvalidPolicy
from policies.snapshot import Snapshot, load

Edit = Callable[[str, str, str], None]
AUDIENCES, DOORS, AGENTS = "cases/audiences.yaml", "cases/doors.yaml", "cases/agents.yaml"


def failures(folder: Path, snapshot: Snapshot) -> list[str]:
    """What does not hold; cases are no part of a snapshot, so one serves for all edits."""
    return [f"{o.name}: {p}" for o in casework.run(folder, snapshot).failures for p in o.problems]


def test_every_default_case_holds_and_every_rule_is_touched(folder: Path) -> None:
    results = casework.run(folder)
    assert results.passed
    assert len(results.outcomes) >= 70
    assert results.untested_rules == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (AUDIENCES, "- {unit: api}\n", "\n", "partner on api (consent none) is allowed by U-PAR-1"),
        (AUDIENCES, "- {unit: faq}\n", "- {unit: faq}\n      - {unit: code}\n",
         "customer on code (consent none) is denied by U-X-RAW"),
        (AUDIENCES, "allowed: 56", "allowed: 57", "customer (consent none) reads 56, not 57"),
        (AUDIENCES, "[customer, partner, employee]", "[employee, customer]", "employee reads"),
        (AUDIENCES, "never: {profile: [customer], visibility: [partner,",
         "never: {profile: [customer], visibility: [public, partner,", "56 states are readable"),
        (AUDIENCES, "kind: [faq, policy, product_doc, thread]", "kind: [faq, code]",
         "states are denied"),
        (DOORS, "expect: employee", "expect: denied", "expected a denial, got employee"),
        (AGENTS, 'expect: "agent:reader"', 'expect: "agent:analyst"', "got agent:reader"),
        (DOORS, "expect: retrieve}", "expect: denied}", "expected a denial, got retrieve"),
        (DOORS, "ttl: 24h, expect: denied", "ttl: 24h, expect: audit", "got a denial (no_rule)"),
    ],
)  # fmt: skip
def test_a_case_that_does_not_hold_says_what_is_wrong(
    file: str, old: str, new: str, message: str, folder: Path, edit: Edit, default: Snapshot
) -> None:
    edit(file, old, new)
    found = failures(folder, default)
    assert any(message in line for line in found), found


def test_a_widened_rule_is_caught_by_the_shipped_cases(folder: Path, edit: Edit) -> None:
    """What the cases are for: a reviewer adds one word to one row."""
    edit("rules/units.csv", "U-CUS-1, customer, public,", "U-CUS-1, customer, public|partner,")
    text = "\n".join(failures(folder, load(folder)))
    assert "customer on api (consent none) is allowed by U-CUS-1" in text
    assert "customer (consent none) reads 112, not 56" in text


@pytest.mark.parametrize(
    ("file", "old", "new", "code"),
    [
        (AUDIENCES, "suite:", "siute:", "missing_key"),
        (AUDIENCES, "units: [faq, recall", "units: [fqa, recall", "unknown_word"),
        (AUDIENCES, "visibility: public,", "visibility: publik,", "unknown_word"),
        (AUDIENCES, "- {unit: faq}", "- {unit: fqa}", "unknown_word"),
        (AUDIENCES, "- never: {profile", "- nevr: {profile", "one_invariant"),
        (AUDIENCES, "- never: {profile: [customer], visib", "- never: {profile: [custmer], visib",
         "unknown_word"),
        (AUDIENCES, "allowed: 56", 'allowed: "56"', "wrong_type"),
        (DOORS, "decide: place,", "decide: plce,", "unknown_word"),
        (DOORS, 'issuer: "idp:staff"', 'issuer: "idp:staf"', "unknown_word"),
        (DOORS, "route: retrieve, method: POST", "route: retrieve, verb: POST", "missing_key"),
    ],
)  # fmt: skip
def test_a_misspelt_case_fails_the_run(
    file: str, old: str, new: str, code: str, folder: Path, edit: Edit, default: Snapshot
) -> None:
    """A case that tests nothing is worse than none: refused, never skipped."""
    edit(file, old, new)
    with pytest.raises(InvalidPolicy) as caught:
        casework.run(folder, default)
    assert code in {fault.code for fault in caught.value.faults}


def test_a_folder_without_cases_or_an_empty_file_fails_the_run(
    folder: Path, default: Snapshot
) -> None:
    (folder / "cases" / "more.yaml").write_text("suite: nothing\n")
    with pytest.raises(InvalidPolicy, match="no_cases"):
        casework.run(folder, default)
    for path in (folder / "cases").iterdir():
        path.unlink()
    with pytest.raises(InvalidPolicy, match="no_cases"):
        casework.run(folder, default)


def test_verify_exits_0_3_or_4(
    folder: Path, edit: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--folder", str(folder), "verify"]
    assert main(command) == 0
    assert "equals Casbin" in capsys.readouterr().out
    edit(AUDIENCES, "allowed: 56", "allowed: 57")
    assert main(command) == 4
    assert f"{AUDIENCES}:" in capsys.readouterr().err
    edit("rules/units.csv", "U-CUS-1, customer", "U-CUS-1, custmer")
    assert main(command) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean `customer`" in captured.err
    assert "the policy is refused" in captured.err


def test_wrong_usage_exits_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verfy"])
    assert caught.value.code == 2


def test_explain_names_the_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ["public", "published", "published", "high", "enacted", "faq"]
    command = ["--folder", str(folder), "explain", "customer", *state]
    assert main(command) == 0
    assert "DENY" in (out := capsys.readouterr().out)
    assert "U-X-RISK" in out
    assert main([*command, "--consent", "granted"]) == 0
    assert "ALLOW" in (out := capsys.readouterr().out)
    assert "U-CUS-2" in out
    assert main(["--folder", str(folder), "explain", "nobody", *state]) == 3
    assert main(["--folder", str(folder), "show", "partner"]) == 0
    assert "partner: 112 states" in capsys.readouterr().out


def test_models_are_restored_by_their_verb(folder: Path) -> None:
    (folder / "models" / "units.conf").write_text("[matchers]\nm = true\n")
    with pytest.raises(InvalidPolicy):
        load(folder)
    assert main(["--folder", str(folder), "models"]) == 0
    assert load(folder)
