"""Sides of a comparison that lie in a clone's history."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from policies.review.revisions import NoRevision, located, opened
from policies.snapshot import load
from tests.policies.conftest import PARTS

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(clone: Path, *arguments: str) -> None:
    identity = {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")}  # fmt: skip
    subprocess.run(
        ["git", "-C", str(clone), *arguments],
        check=True, capture_output=True,
        env=os.environ | identity | {"GIT_CONFIG_GLOBAL": os.devnull},
    )  # fmt: skip


@pytest.fixture
def clone(tmp_path: Path, folder: Path) -> Path:
    """A clone whose first commit holds the default policy at ``sub/policy``."""
    top = tmp_path / "clone"
    (top / "sub").mkdir(parents=True)
    for part in PARTS:
        shutil.copytree(folder / part, top / "sub/policy" / part)
    git(top, "init", "-q")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "one")
    return top


def test_a_revision_reads_like_the_folder_it_was(clone: Path, folder: Path) -> None:
    rules = clone / "sub/policy/rules/units.csv"
    rules.write_text(rules.read_text() + "# later\n")
    where, path = located(clone / "sub/policy")
    assert path == "sub/policy"
    with opened("HEAD", where, path) as revision:
        assert load(revision).digest == load(folder).digest
        kept = revision
    assert not kept.exists()
    with opened(str(clone / "sub/policy"), where, path) as place:
        assert "# later" in (place / "rules/units.csv").read_text()


def test_attributes_of_the_tree_hide_no_file(clone: Path, folder: Path) -> None:
    """``git archive`` would leave the file out, and the product would read it."""
    (clone / ".gitattributes").write_text("*.yaml export-ignore\n*.csv ident filter=lfs\n")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "two")
    with opened("HEAD", clone, "sub/policy") as revision:
        assert load(revision).digest == load(folder).digest


@pytest.mark.parametrize("side", ["nowhere", "--output=x", "-h", "HEAD:sub", ""])
def test_what_is_no_revision_is_refused(side: str, clone: Path) -> None:
    with pytest.raises(NoRevision), opened(side, clone, "sub/policy"):
        pass


def test_a_revision_without_the_policy_is_refused(clone: Path) -> None:
    with (
        pytest.raises(NoRevision, match="holds no policy at `other`"),
        opened("HEAD", clone, "other"),
    ):
        pass


def test_a_link_in_a_revision_is_refused(clone: Path) -> None:
    """It would be followed out of the temporary folder, to a file that nobody reviewed."""
    file = clone / "sub/policy/rules/units.csv"
    file.unlink()
    file.symlink_to("/etc/hostname")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "link")
    with pytest.raises(NoRevision, match="is no plain file"), opened("HEAD", clone, "sub/policy"):
        pass


def test_a_folder_outside_any_clone_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(NoRevision):
        located(tmp_path)
