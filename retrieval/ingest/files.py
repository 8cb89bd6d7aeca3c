"""The files of a source: regular ones below its folder, opened so that nothing leads elsewhere.

Between the look through a folder and the reading its entries may be exchanged. So every part of
a path below the root is opened from the folder above it, without following a link and without
waiting (a FIFO has no writer), and what was opened is looked at again.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

SUFFIXES: Final = (".md", ".jsonl")
LINK: Final = "a symbolic link is not followed"
IRREGULAR: Final = "not a regular file"

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """A file by its path ``below`` the ``root`` (empty: the root itself), or why it is none."""

    root: Path
    below: PurePosixPath
    fault: str = ""

    @property
    def is_markdown(self) -> bool:
        return (self.root / self.below).suffix == ".md"

    def open(self) -> BinaryIO:
        """Its bytes. Raises OSError, also when it is no regular file (any more)."""
        if not self.below.parts:
            return _regular(os.open(self.root, _FILE))
        folder = os.open(self.root, _FOLDER)
        try:
            for part in self.below.parts[:-1]:
                deeper = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = deeper
            return _regular(os.open(self.below.name, _FILE, dir_fd=folder))
        finally:
            os.close(folder)


def entries_of(root: Path) -> tuple[Entry, ...]:
    """What ``root`` (no link) holds, by name; or itself alone, if it is no folder.

    Links to folders are named, too. Raises OSError when a folder cannot be listed.
    """
    if not root.is_dir():
        return (Entry(root, PurePosixPath()),)
    return tuple(sorted(_below(root, PurePosixPath()), key=lambda one: one.below))


def _below(root: Path, folder: PurePosixPath) -> Iterator[Entry]:
    with os.scandir(root / folder) as found:
        inside = list(found)
    for one in inside:
        below = folder / one.name
        named = below.suffix in SUFFIXES
        if one.is_symlink():
            if named or one.is_dir():
                yield Entry(root, below, LINK)
        elif named:
            yield Entry(root, below, "" if one.is_file(follow_symlinks=False) else IRREGULAR)
        elif one.is_dir(follow_symlinks=False):
            yield from _below(root, below)


def _regular(descriptor: int) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, IRREGULAR)
    return os.fdopen(descriptor, "rb")
