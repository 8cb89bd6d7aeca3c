"""A spoilt policy folder is a list of faults, whatever spoilt it; never another exception."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import soundness
from policies.errors import Fault, InvalidPolicy
from policies.loader import parse
from policies.snapshot import DEFAULT_FOLDER, compiled

FILES = sorted(
    path.relative_to(DEFAULT_FOLDER).as_posix()
    for part in ("rules", "mappings")
    for path in (DEFAULT_FOLDER / part).iterdir()
    if not path.name.startswith(".")
)
PIECES = st.sampled_from(
    ["", ",", "|", ":", "{", "}", "[", "]", "\n", " ", "  ", "- ", "#", '"', "'", "*", "&a", "!!x",
     "null", "true", "all", "deny", "p, ", "0", "-1", "é", "\u200b", "\r", "\t", "\x00", "{a: b}"]
) | st.text(max_size=4)  # fmt: skip


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spoilt")
    for part in ("rules", "models", "mappings"):
        shutil.copytree(DEFAULT_FOLDER / part, folder / part)
    return folder


def faults_of(folder: Path) -> tuple[Fault, ...] | None:
    """Why the folder is refused, before or after compiling; None when it is accepted."""
    try:
        parsed = parse(folder)
        soundness.check(parsed, compiled(parsed)[0].table)
    except InvalidPolicy as refused:
        return refused.faults
    return None


@settings(max_examples=120)
@given(st.sampled_from(FILES), st.data())
def test_no_edit_of_a_policy_file_makes_the_loader_raise_anything_else(
    spoilt: Path, name: str, data: st.DataObject
) -> None:
    """One to three cuts and insertions at random places of one shipped file."""
    path = spoilt / name
    original = path.read_bytes()
    text = original.decode()
    try:
        for _ in range(data.draw(st.integers(1, 3))):
            start = data.draw(st.integers(0, len(text)))
            end = data.draw(st.integers(start, min(len(text), start + 30)))
            text = text[:start] + data.draw(PIECES) + text[end:]
        path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
        found = faults_of(spoilt)
        assert found is None or found
        assert all(fault.code and fault.reason and fault.remedy for fault in found or ())
    finally:
        path.write_bytes(original)


@pytest.mark.parametrize("name", FILES)
def test_binary_rubbish_is_refused(name: str, spoilt: Path) -> None:
    path = spoilt / name
    original = path.read_bytes()
    try:
        path.write_bytes(bytes(range(256)))
        assert faults_of(spoilt)
    finally:
        path.write_bytes(original)
