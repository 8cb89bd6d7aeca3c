"""The bytes of a policy folder: which files belong to it, and the digest over them.

Laws
    * Everything that can open access is a file under ``rules``, ``models`` or ``mappings``,
      and every file there is covered by the digest. A file that nobody would read is
      refused: a rule in it would be dropped without a word.
    * An overlay replaces whole files of the same relative path; the digest covers the result.
    * Text is UTF-8 without byte-order mark, LF line ends, no control characters.

This module does not know what the files say.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policies.decision import PolicyDigest
from policies.faults import Faults, Place, shown

COVERED: Final = {
    "rules": (".csv", ".yaml", ".lock", ".json"),
    "models": (".conf",),
    "mappings": (".yaml",),
}
"""Folder of the policy: the endings of the files that it may hold."""

FILE_BYTES_MAX: Final = 4_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """The covered files by relative path (``rules/units.csv``), and their digest.

    ``overlaid`` names those that came from the overlay.
    """

    contents: Mapping[str, bytes]
    digest: PolicyDigest
    overlaid: frozenset[str]

    def text(self, file: str, faults: Faults) -> str | None:
        """A file as text, or None with the reason recorded."""
        content = self.contents.get(file)
        if content is None:
            if not any(fault.file == file for fault in faults):  # else it is there, but unreadable
                faults.add(Place(file), "missing_file", f"`{file}` is missing", "restore it")
            return None
        return decoded(file, content, faults)


def read(folder: Path, overlay: Path | None, faults: Faults) -> PolicyFiles:
    """The files of ``folder``, those of ``overlay`` in their place. Cost: reads about 20 files.

    Raises: InvalidPolicy for a folder that is not there, lest each of its files be a fault, too.
    """
    contents = _collect(folder, faults)
    over = _collect(overlay, faults) if overlay is not None else {}
    if any(fault.code == "missing_folder" for fault in faults):
        faults.check()
    contents |= over
    return PolicyFiles(contents, digest_of(contents), frozenset(over))


def digest_of(contents: Mapping[str, bytes]) -> PolicyDigest:
    """SHA-256 over the sorted (path, content hash) pairs: independent of order and of clones."""
    outer = hashlib.sha256(b"audience-gateway policy 1\n")
    for file in sorted(contents):
        inner = hashlib.sha256(contents[file]).hexdigest()
        outer.update(f"{inner} {file}\n".encode())
    return PolicyDigest(outer.hexdigest())


def decoded(file: str, content: bytes, faults: Faults) -> str | None:
    """Bytes as strict text, or None with the reason recorded."""
    if content.startswith(b"\xef\xbb\xbf"):
        faults.add(
            Place(file, 1, 1),
            "byte_order_mark",
            "the file starts with a byte-order mark, which hides its first row",
            "save it as UTF-8 without BOM",
        )
        return None
    try:
        text = content.decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        faults.add(Place(file, line), "not_utf8", "the file is not UTF-8", "save it as UTF-8")
        return None
    if "\r\n" in text:  # an editor's or a checkout's choice for the whole file: one fault
        faults.add(
            Place(file, text[: text.index("\r\n")].count("\n") + 1),
            "carriage_returns",
            "lines end in CR LF",
            "save it with LF only (git: `core.autocrlf` is `input` or `false`)",
        )
        return None
    clean = True
    for number, line_text in enumerate(text.split("\n"), 1):
        for hit in _UNPRINTABLE.finditer(line_text):
            clean = False
            faults.add(
                Place(file, number, hit.start() + 1),
                "control_character",
                f"the line holds the invisible character `U+{ord(hit[0]):04X}`",
                "remove it; lines end in LF only",
            )
    return text if clean else None


def _collect(folder: Path, faults: Faults) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    if not folder.is_dir():
        reason = f"there is no folder {shown(folder.name)}"
        faults.add(Place("."), "missing_folder", reason, "name another")
        return contents
    for part, endings in COVERED.items():
        for path in sorted((folder / part).rglob("*")):
            relative = path.relative_to(folder)
            name = relative.as_posix()
            if path.is_dir() or any(word.startswith(".") for word in relative.parts):
                continue
            if not _NAME.fullmatch(name):
                faults.add(
                    Place(shown(name)),
                    "bad_file_name",
                    "the file's name holds something other than letters, digits and `_ . -`",
                    "rename it",
                )
            elif path.suffix not in endings:
                faults.add(
                    Place(name),
                    "unknown_file",
                    f"`{name}` would never be read",
                    f"remove it, or give it one of the endings {', '.join(endings)}",
                )
            else:
                content = _content(name, path, faults)
                if content is not None:
                    contents[name] = content
    return contents


def _content(name: str, path: Path, faults: Faults) -> bytes | None:
    """One file's bytes. A link is followed: what counts is what was read, under the digest."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror or 'no reason given'}"
        faults.add(Place(name), "unreadable", reason, "check its permissions")
        return None
    if len(content) > FILE_BYTES_MAX:
        faults.add(Place(name), "file_too_large", "the file is over 4 MB", "split or shorten it")
        return None
    return content
