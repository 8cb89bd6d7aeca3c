"""What a reviewer is told of a spoilt file: its own fault once, and nothing that is not so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policies.errors import Fault

Refused = Callable[[], tuple[Fault, ...]]


@pytest.mark.parametrize("name", ["rules/units.csv", "rules/vocabulary.yaml"])
def test_a_file_saved_with_cr_lf_is_one_fault_that_names_the_remedy(
    name: str, folder: Path, faults: Refused
) -> None:
    """Every line has one; a list of them would bury what to do."""
    path = folder / name
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    found = [fault for fault in faults() if fault.file == name]
    assert [(fault.code, fault.line) for fault in found] == [("carriage_returns", 1)]
    assert "LF only" in found[0].remedy


def test_a_file_that_cannot_be_read_is_not_called_missing(folder: Path, faults: Refused) -> None:
    (folder / "rules/units.csv").unlink()
    (folder / "rules/units.csv").symlink_to(folder / "gone")
    assert [f.code for f in faults() if f.file == "rules/units.csv"] == ["unreadable"]


def test_rows_that_are_all_at_fault_are_not_called_absent(folder: Path, faults: Refused) -> None:
    """Without issuers no row of audience.csv stands; the rows are there all the same."""
    (folder / "rules/issuers.yaml").write_text("")
    codes = {(fault.file, fault.code) for fault in faults()}
    assert ("rules/issuers.yaml", "empty_file") in codes
    assert ("rules/audience.csv", "no_rules") not in codes


def test_no_remedy_is_an_empty_list(folder: Path, faults: Refused) -> None:
    (folder / "rules/issuers.yaml").write_text("")
    unknown = [fault.remedy for fault in faults() if fault.code == "unknown_word"]
    assert unknown
    assert set(unknown) == {"none is known: mend the file that lists them first"}
