"""A private copy of the default policy to spoil, and readers of what the loader says about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from policies.errors import Fault, InvalidPolicy
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load

PARTS = ("rules", "models", "mappings", "cases")


@pytest.fixture(scope="session")
def default() -> Snapshot:
    return load()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the default policy folder."""
    for part in PARTS:
        shutil.copytree(DEFAULT_FOLDER / part, tmp_path / part)
    return tmp_path


@pytest.fixture
def edit(folder: Path) -> Callable[[str, str, str], None]:
    """Replaces one piece of text in one file of the copy; the text must be there."""

    def replace(file: str, old: str, new: str) -> None:
        path = folder / file
        text = path.read_bytes().decode()
        assert old in text, f"{old!r} is not in {file}"
        path.write_bytes(text.replace(old, new, 1).encode())

    return replace


@pytest.fixture
def faults(folder: Path) -> Callable[[], tuple[Fault, ...]]:
    """The faults for which the copy is refused; fails when it is accepted."""

    def refused() -> tuple[Fault, ...]:
        with pytest.raises(InvalidPolicy) as caught:
            load(folder)
        return caught.value.faults

    return refused
