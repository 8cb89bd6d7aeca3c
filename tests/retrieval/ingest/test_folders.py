"""Folders that hold more than files: each strange entry is named, the others are taken.

Source: an attack on this repository: a link out of the folder was followed, a FIFO hung the run.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from retrieval.ingest import IngestRefused, Report, run
from retrieval.ingest.sources import open_source
from tests.retrieval.ingest.bench import GOOD, Bench

PAGE = "---\ntitle: T\n" + "\n".join(f"{n}: '{w}'" for n, w in GOOD.items()) + "\n---\nBody\n"


@pytest.fixture
def folder(bench: Bench) -> Path:
    made = bench.folder / "notes"
    (made / "deep").mkdir(parents=True)
    (made / "good.md").write_text(PAGE)
    (made / "deep" / "too.md").write_text(PAGE)
    return made


def taken(bench: Bench, folder: Path) -> Report:
    report = run(folder, bench.native, dsn=bench.dsn)
    assert bench.all("select canonical_address from brain.unit order by 1") == [
        ("deep/too",), ("good",),
    ]  # fmt: skip
    return report


def named(report: Report) -> set[tuple[str, str]]:
    return {(reason.place, reason.reason) for reason in report.reasons}


def test_links_are_named_and_not_followed(bench: Bench, folder: Path) -> None:
    """To a file outside, to a folder outside, to one inside, to nothing, to itself."""
    outside = bench.folder / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text(PAGE)
    (folder / "file.md").symlink_to(outside / "secret.md")
    (folder / "folder").symlink_to(outside)
    (folder / "inside.md").symlink_to(folder / "good.md")
    (folder / "gone.md").symlink_to(outside / "absent.md")
    (folder / "round.md").symlink_to(folder / "round.md")
    (folder / "up").symlink_to(folder)
    (folder / "picture.png").symlink_to(outside / "secret.md")  # nobody would have read it
    reason = "a symbolic link is not followed"
    links = ("file.md", "folder", "inside.md", "gone.md", "round.md", "up")
    assert named(taken(bench, folder)) == {(name, reason) for name in links}


def test_what_is_no_regular_file_is_named_and_not_opened(bench: Bench, folder: Path) -> None:
    """Opening a FIFO would wait for a writer for ever."""
    os.mkfifo(folder / "pipe.md")
    (folder / "folder.md").mkdir()
    (folder / "folder.md" / "inner.md").write_text(PAGE)
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(folder)  # the path of a socket is short
        try:
            listening.bind("socket.jsonl")
        finally:
            os.chdir(here)
    reason = "not a regular file"
    names = ("pipe.md", "folder.md", "socket.jsonl")
    assert named(taken(bench, folder)) == {(name, reason) for name in names}


@pytest.mark.parametrize("turn", ["link", "folder behind a link", "pipe", "nothing"])
def test_a_file_that_becomes_another_thing_meanwhile_is_not_followed(
    bench: Bench, folder: Path, turn: str
) -> None:
    """Between the look through the folder and the reading."""
    secret = bench.folder / "deep" / "too.md"
    secret.parent.mkdir()
    secret.write_text(PAGE.replace("Body", "Secret"))
    source = open_source(folder)
    (folder / "deep" / "too.md").unlink()
    match turn:
        case "link":
            (folder / "deep" / "too.md").symlink_to(secret)
        case "folder behind a link":
            (folder / "deep").rmdir()
            (folder / "deep").symlink_to(secret.parent)
        case "pipe":
            os.mkfifo(folder / "deep" / "too.md")
    first, second = source
    assert first.place == "deep/too.md"
    assert first.fault
    assert first.markdown is None
    assert second.markdown == "Body"


def test_the_path_itself_may_be_a_link_but_no_pipe(bench: Bench, folder: Path) -> None:
    """Whoever names it means it."""
    (bench.folder / "link").symlink_to(folder)
    assert [raw.place for raw in open_source(bench.folder / "link")] == [
        "deep/too.md:1",
        "good.md:1",
    ]
    (bench.folder / "link.md").symlink_to(folder / "good.md")
    assert [raw.fault for raw in open_source(bench.folder / "link.md")] == [""]
    os.mkfifo(bench.folder / "pipe.md")
    with pytest.raises(IngestRefused) as caught:
        open_source(bench.folder / "pipe.md")
    assert caught.value.code == "source_unreadable"
