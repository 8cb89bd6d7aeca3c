"""The files that the suite is spread by are there, and those of one kind stay together."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from tests.spread import LONG, TOGETHER, is_short, scope

ROOT = Path(__file__).parents[1]


def test_every_file_that_is_named_is_there() -> None:
    named = (*LONG, *chain.from_iterable(TOGETHER))
    assert [one for one in named if not (ROOT / one).exists()] == []


def test_files_that_share_what_is_costly_go_to_one_process() -> None:
    for files in TOGETHER:
        assert len({scope(f"{file}::test_it") for file in files}) == 1
    assert scope("tests/a.py::test_it") != scope("tests/b.py::test_it")


def test_long_files_come_first() -> None:
    names = ["tests/policies/test_a.py::test_it", f"{LONG[0]}test_b.py::test_it"]
    assert sorted(names, key=is_short) == names[::-1]
