"""The two sides of a comparison: a folder, or a revision of the clone that holds the folder.

Files of a revision are read object by object, never checked out: attributes of the tree
(``export-ignore``, filters) could otherwise hide a file from the reviewer that the running
product would read.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from policies.errors import PolicyError
from policies.files import COVERED

PARTS: Final = (*COVERED, "cases")
_TIMEOUT_S: Final = 60


class NoRevision(PolicyError):
    """A side of a comparison is neither a folder nor a revision that git knows."""


def is_folder(side: str) -> bool:
    """Whether one side of a comparison names a folder; the empty text names nothing."""
    return side != "" and Path(side).is_dir()


@contextmanager
def opened(side: str, clone: Path, path: str) -> Iterator[Path]:
    """The policy folder of one side, for as long as the context lasts.

    ``side`` names a folder if there is one of that name, else a revision of ``clone``, in
    which the policy lies at ``path``. Raises NoRevision.
    """
    if is_folder(side):
        yield Path(side)
        return
    with tempfile.TemporaryDirectory(prefix="policy-") as temporary:
        _extract(side, clone, path, Path(temporary))
        yield Path(temporary)


def located(folder: Path) -> tuple[Path, str]:
    """The clone that holds a policy folder, and the folder's path in it. Raises NoRevision."""
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    return top, folder.resolve().relative_to(top.resolve()).as_posix()


def _extract(revision: str, clone: Path, path: str, target: Path) -> None:
    if revision.startswith("-"):
        raise NoRevision(f"`{revision}` is neither a folder nor a revision")
    try:
        commit = _git(clone, "rev-parse", "--verify", f"{revision}^{{commit}}").decode()
    except NoRevision as error:
        raise NoRevision(f"`{revision}` is neither a folder nor a revision: {error}") from error
    prefix = "" if path in ("", ".") else f"{path}/"
    listed = _git(clone, "ls-tree", "-r", "-z", "--full-tree", commit.strip(), "--",
                  *(f"{prefix}{part}" for part in PARTS))  # fmt: skip
    entries = [entry for entry in listed.split(b"\0") if entry]
    if not entries:
        raise NoRevision(
            f"revision `{revision}` holds no policy at `{path}`; name its place by --folder"
        )
    for entry in entries:
        head, _, name = entry.partition(b"\t")
        mode, sort, blob = head.split(b" ")
        if sort != b"blob" or mode == b"120000":
            raise NoRevision(f"`{name.decode(errors='replace')}` in `{revision}` is no plain file")
        file = target / name.decode("utf-8", errors="surrogateescape").removeprefix(prefix)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_git(clone, "cat-file", "blob", blob.decode()))


def _git(clone: Path, *arguments: str) -> bytes:
    program = shutil.which("git")
    if program is None:
        raise NoRevision("git is not installed; name two folders instead")
    done = subprocess.run(  # a list of arguments, no shell; the revision was checked
        [program, "-C", str(clone), *arguments],
        capture_output=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoRevision(said[0] if said else f"git ended with code {done.returncode}")
    return done.stdout
