"""The verify report: coverage, thresholds, kept proofs, and its JUnit and SARIF forms."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from policies.errors import IncongruentPolicy
from policies.review import forms, kept_proof
from policies.review.reading import read, read_unproven
from policies.review.verify import findings, page, verify
from policies.review.writers import json as json_writer
from policies.review.writers import junit, markdown, sarif, text
from policies.snapshot import Snapshot

Edit = Callable[[str, str, str], None]
AUDIENCES = "cases/audiences.yaml"


def test_the_default_policy_holds_with_every_rule_and_profile_covered(folder: Path) -> None:
    """Thresholds of 100 are the default: a rule that no case touches fails the run."""
    report = verify(read(folder))
    assert report.passed
    assert [(c.what, c.percent) for c in report.coverage] == [("rules", 100), ("profiles", 100)]
    assert report.forms == 48
    assert findings(report) == ()


def test_what_no_case_touches_is_named_with_its_line(folder: Path, edit: Edit) -> None:
    edit("cases/doors.yaml", "name: staff, decide: place, issuer: \"idp:staff\", claims: "
         "{groups: [\"grp:staff\"]},\n     expect: employee",
         "name: staff, decide: place, issuer: \"idp:staff\", claims: "
         "{groups: [\"grp:contractors\"]},\n     expect: denied")  # fmt: skip
    report = verify(read(folder))
    rules = report.coverage[0]
    assert not report.passed
    assert [name for name, _ in rules.untouched] == ["A-EMP-1"]
    name, place = rules.untouched[0]
    line = (folder / place.file).read_text().splitlines()[place.line - 1]
    assert line.startswith(f"p, {name},")
    assert f"`A-EMP-1` at rules/audience.csv:{place.line}" in text.write(page(report))
    assert verify(read(folder), min_rules=90).passed


def test_a_profile_that_only_invariants_name_is_not_covered(folder: Path, edit: Edit) -> None:
    """A golden number says nothing about which states are read."""
    edit(AUDIENCES, "profiles: [partner]", "profiles: [customer]")
    edit(AUDIENCES, "      - {unit: api}\n", "")
    report = verify(read(folder), min_rules=0)
    assert [name for name, _ in report.coverage[1].untouched] == ["partner"]
    assert not report.passed


def test_junit_holds_every_case_and_the_failure_of_one(folder: Path, edit: Edit) -> None:
    edit(AUDIENCES, "allowed: 56", "allowed: 57")
    report = verify(read(folder))
    root = ET.fromstring(junit.write(report.outcomes))  # noqa: S314 - our own text
    cases = root.findall(".//testcase")
    assert len(cases) == len(report.outcomes) == int(root.attrib["tests"])
    assert all(case.attrib["name"].endswith(f"(line {case.attrib['line']})") for case in cases)
    (failure,) = root.findall(".//failure")
    assert failure.attrib["message"] == "customer (consent none) reads 56, not 57"
    assert root.attrib["failures"] == "1"
    found = json.loads(sarif.write(findings(report), prefix="policies/"))["runs"][0]["results"]
    (result,) = found
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == f"policies/{AUDIENCES}"
    assert (
        "allowed: 57"
        in (folder / AUDIENCES).read_text().splitlines()[place["region"]["startLine"] - 1]
    )


def test_every_format_tells_the_same_failure(folder: Path, edit: Edit) -> None:
    edit(AUDIENCES, "allowed: 56", "allowed: 57")
    report = verify(read(folder))
    for shown in (
        text.write(page(report)),
        markdown.write(page(report)),
        json_writer.write(report),
    ):
        assert "reads 56, not 57" in shown


@pytest.mark.parametrize("profile", ["customer", "agent:auditor"])
@pytest.mark.parametrize("consent", ["none", "granted"])
def test_an_emitted_form_that_lags_behind_the_table_is_noticed(
    profile: str, consent: str, folder: Path
) -> None:
    """A grant that was cached before the table changed stands for any form made elsewhere."""
    snapshot = read_unproven(folder).snapshot
    assert forms.check(snapshot) == 48
    readable = snapshot.table.units.readable
    assert isinstance(readable, dict)
    readable[profile, consent] ^= 1 << 4_000
    with pytest.raises(IncongruentPolicy, match=profile):
        forms.check(snapshot)


def test_a_kept_proof_counts_for_the_very_table_that_was_proven(
    default: Snapshot, tmp_path: Path
) -> None:
    """A compiler that changed makes another table under the same digest, and is asked anew."""
    assert kept_proof.recall(tmp_path / "no", default) is None
    kept_proof.keep(tmp_path / "p", default, 172_800)
    assert kept_proof.recall(tmp_path / "p", default) == 172_800
    units = default.table.units
    readable = {**units.readable, ("customer", "none"): units.readable["customer", "none"] ^ 1}
    table = dataclasses.replace(default.table, units=dataclasses.replace(units, readable=readable))
    assert kept_proof.recall(tmp_path / "p", dataclasses.replace(default, table=table)) is None
    (file,) = (tmp_path / "p").iterdir()
    file.write_text(file.read_text().replace("172800", '"many"'))
    assert kept_proof.recall(tmp_path / "p", default) is None
