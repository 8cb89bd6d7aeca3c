"""The seed's statements and the tests that claim them, checked in both directions."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
TESTS = HERE.parent
SEED = TESTS.parents[1] / "shared" / "seeds" / "thread-retrieval-and-audience-scope.txt"
CLAIM = re.compile(r"\b[Ss]eed (\d(?:\.\d+)?-\d+)\b")
LISTED = {"4.2": 5, "4.3": 5, "4.4": 15, "4.5": 4, "4.7": 3, "4.8": 8, "4.9": 6, "4.13": 6}
"""How many rows, fields or numbers these sections have; what they say besides comes after."""
OBJECTS, GAPS = 6, 10


def manifest() -> dict[str, dict[str, object]]:
    """Id -> what is asked for, with its tests or the reason why there is none."""
    found = yaml.safe_load((HERE / "seed.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return {str(name): entry for name, entry in found.items()}


def claims_of(file: Path) -> dict[str, set[str]]:
    """The tests of a file, with the statements that their docstrings claim."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        node.name: set(CLAIM.findall(ast.get_docstring(node) or ""))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def claimants(entry: dict[str, object]) -> list[str]:
    named = entry.get("tests", [])
    assert isinstance(named, list)
    return [str(one) for one in named]


def test_every_statement_has_a_test_or_a_written_reason() -> None:
    """A reason is a sentence, and stands only where no test does."""
    for name, entry in manifest().items():
        assert set(entry) in ({"says", "tests"}, {"says", "reason"}), name
        assert len(str(entry["says"]).split()) >= 1, name
        if "reason" in entry:
            assert len(str(entry["reason"]).split()) > 5, name
        else:
            assert claimants(entry), f"{name}: nothing claims `{entry['says']}`"


def test_every_test_of_the_manifest_exists() -> None:
    """By file and name; a test that is renamed or removed is missed here."""
    known: dict[str, dict[str, set[str]]] = {}
    for name, entry in manifest().items():
        for test in claimants(entry):
            path, _, function = test.partition("::")
            found = known.setdefault(path, claims_of(TESTS / path))
            assert function in found, f"{name}: {test}"


def test_every_claim_of_a_test_stands_in_the_manifest() -> None:
    """A docstring that says `seed 4.2-3` is listed there, under that number."""
    entries = manifest()
    for file in sorted(TESTS.rglob("test_*.py")):
        if file.parent == HERE:
            continue
        for function, claimed in claims_of(file).items():
            test = f"{file.relative_to(TESTS).as_posix()}::{function}"
            for name in claimed:
                assert name in entries, f"{test} claims {name}, which is no statement"
                assert test in claimants(entries[name]), f"{test} claims {name} and is not listed"


def test_numbers_run_through_every_section() -> None:
    """Sections in order, each counted from one, none left out."""
    counts = Counter(name.rpartition("-")[0] for name in manifest())
    sections = [*(f"4.{number}" for number in range(1, 15)), "5", "6"]
    assert list(counts) == sections
    expected = [
        f"{section}-{place}" for section in sections for place in range(1, counts[section] + 1)
    ]
    assert list(manifest()) == expected
    assert all(counts[section] >= least for section, least in LISTED.items())
    assert (counts["5"], counts["6"]) == (OBJECTS, GAPS)


@pytest.mark.skipif(not SEED.is_file(), reason="the seed is not handed to users")
def test_names_that_the_seed_gives_stand_in_the_manifest() -> None:
    """Fields, metrics, signals and storage objects by their own names, in the seed's order."""
    text = SEED.read_text(encoding="utf-8")
    entries = manifest()
    for section, marker, least in (("4.4", "thread_id\n", 15), ("5", "retrieval_metric_event", 6)):
        names = [
            str(entry["says"]) for name, entry in entries.items() if name.startswith(section + "-")
        ]
        block = text[text.index(marker) :] if section == "4.4" else text[text.index("\n5. ") :]
        places = [block.find(one.removeprefix("field ").split(",")[0]) for one in names[:least]]
        assert -1 not in places, section
        assert places == sorted(places), section
    for section in ("4.8", "4.9"):
        names = [str(entry["says"]).split()[0] for name, entry in entries.items()
                 if name.startswith(section + "-")]  # fmt: skip
        assert all(one in text for one in names[: LISTED[section]]), section
