"""The table of the attack log and the tests, held against each other in both directions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

HERE = Path(__file__).parent
COUNTS = {"A": 17, "B": 17, "S": 17, "J": 23, "O": 18, "W": 11, "F": 19, "D": 7}
ROW = re.compile(r"\b([ABSJOWFD])(\d{1,2})(?:-[ABSJOWFD]?(\d{1,2}))?\b")


def table() -> dict[str, list[str] | str]:
    """Row -> its tests, or why it has none."""
    found = yaml.safe_load((HERE / "attack_log.yaml").read_text())
    assert isinstance(found, dict)
    return found


def functions_of(file: Path) -> dict[str, str]:
    """The test functions of a file, with their docstrings."""
    tree = ast.parse(file.read_text())
    return {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def rows_in(text: str) -> set[str]:
    """The rows that a text names; ``A1-A5`` and ``A1-5`` are five."""
    return {
        f"{kind}{number}"
        for kind, first, last in ROW.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


def test_every_row_of_the_log_stands_in_the_table_once() -> None:
    """All 129, in order, each with tests or with a reason in words."""
    rows = [f"{kind}{number}" for kind, count in COUNTS.items() for number in range(1, count + 1)]
    lines = (HERE / "attack_log.yaml").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines if re.match(r"[A-Z]\d", line)] == rows
    assert len(rows) == 129
    for entry in table().values():
        assert isinstance(entry, list) or len(entry.split()) > 5


def test_every_test_of_the_table_exists() -> None:
    """By file and name; a test that is renamed or removed is missed here."""
    for row, entry in table().items():
        for named in entry if isinstance(entry, list) else ():
            path, _, name = named.partition("::")
            assert name in functions_of(HERE.parent / path), f"{row}: {named}"


def test_every_row_that_a_test_here_names_stands_in_the_table_with_it() -> None:
    """The docstrings of this folder say what is tried; the table says the same."""
    entries = table()
    for file in sorted(HERE.glob("test_*.py")):
        if file.name == "test_table.py":
            continue
        for name, docstring in functions_of(file).items():
            listed = {row for row, entry in entries.items() if isinstance(entry, list)
                      and f"adversary/{file.name}::{name}" in entry}  # fmt: skip
            named = rows_in(docstring)
            assert named <= listed, f"{file.name}::{name} names {sorted(named - listed)}"
