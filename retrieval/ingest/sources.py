"""Where records come from: JSON lines, and folders of Markdown with front matter.

Laws
    * Every line and every file gives exactly one thing: a record, or the reason why it is none.
    * JSON and front matter are read strictly: no doubled names, no NaN, no anchors, no text
      that turns into something else.
    * The order is fixed (files by name, lines as they stand): a checkpoint counts records.
    * Only regular files below the folder are read. Links are not followed, nothing that waits for
      a writer is opened; what carries the name of a source and is none is told by its name.

A source is named by its last part, never by the path of the machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import UUID

from policies.faults import Faults
from policies.yamltree import Node, parse
from retrieval.ingest.errors import IngestRefused
from retrieval.ingest.files import SUFFIXES, Entry, entries_of
from retrieval.ingest.report import Sort, printable

LINE_BYTES: Final = 16 * 1024 * 1024
FENCE: Final = "---"
DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
"""The only spelling of a number that front matter takes: YAML knows octal and base 60, too."""


@dataclass(frozen=True, slots=True)
class Raw:
    """One record as it stands in the source, or why it cannot be read (``fault``).

    ``place`` is ``file:line``. ``markdown`` is the body below the front matter. ``names`` is the
    object that an unreadable record is about, where that can be told.
    """

    place: str
    fields: dict[str, Any]
    markdown: str | None = None
    fault: str = ""
    names: tuple[Sort, UUID] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder, looked through once: how many records, and the digest of its bytes."""

    name: str
    entries: tuple[Entry, ...]
    total: int
    digest: str
    partial: bool = False

    def finish(self, target: object, *, origin: str, mapping: str, report: object) -> None:
        """Files say themselves what is to be deleted, and are read whole each time."""

    def __iter__(self) -> Iterator[Raw]:
        for entry in self.entries:
            label = str(entry.below) if entry.below.parts else self.name
            if entry.fault:
                yield Raw(label, {}, fault=entry.fault)
                continue
            read = _markdown if entry.is_markdown else _lines
            try:
                with entry.open() as stream:
                    yield from read(stream, label)
            except OSError as error:
                yield Raw(label, {}, fault=f"the file cannot be read any more ({error.strerror})")


def open_source(path: Path) -> Source:
    """The source at ``path``: a ``.jsonl`` or ``.md`` file, or a folder of them.

    Raises ``IngestRefused`` ``source_absent``, ``source_unreadable`` or ``source_empty``.
    Cost: one pass over the bytes.
    """
    if not path.exists():
        raise IngestRefused("source_absent", f"there is no `{path}`", "name an existing path")
    root = path.resolve()  # whoever names a link means what it leads to
    try:
        entries = entries_of(root)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not entries or (root.is_file() and root.suffix not in SUFFIXES):
        raise IngestRefused(
            "source_empty",
            f"`{path}` holds no `.jsonl` and no `.md` file",
            "name a file of JSON lines, a Markdown file, or a folder of them",
        )
    total, digest = 0, hashlib.sha256()
    try:
        for entry in entries:
            said = f"{root.name}/{entry.below} {entry.fault}\n"
            digest.update(said.encode("utf-8", "surrogateescape"))
            if entry.fault:
                total += 1
                continue
            with entry.open() as stream:
                for line in stream:
                    digest.update(line)
                    total += not entry.is_markdown and bool(line.strip())
            total += entry.is_markdown
    except OSError as error:
        raise _unreadable(path, error) from error
    return Source(printable(root.name), entries, total, digest.hexdigest())


def _unreadable(path: Path, error: OSError) -> IngestRefused:
    return IngestRefused(
        "source_unreadable", f"`{path}` cannot be read ({error.strerror})", "make it readable"
    )


# --- JSON lines ---------------------------------------------------------------------------


def _lines(stream: BinaryIO, label: str) -> Iterator[Raw]:
    for number, line in enumerate(stream, start=1):
        if line.strip():
            yield _line(line, f"{label}:{number}")


def _line(line: bytes, place: str) -> Raw:
    if len(line) > LINE_BYTES:
        return Raw(place, {}, fault=f"the line is longer than {LINE_BYTES} bytes")
    try:
        record = json.loads(
            line.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except UnicodeDecodeError:
        return Raw(place, {}, fault="the line is not UTF-8")
    except _DoubledError as doubled:
        return Raw(place, {}, fault=f"the name `{doubled}` is given twice")
    except (ValueError, RecursionError):
        return Raw(place, {}, fault="the line is not valid JSON")
    if not isinstance(record, dict):
        return Raw(place, {}, fault="the line is not a JSON object")
    return Raw(place, record)


class _DoubledError(ValueError):
    """A name that stands twice in one object: readers would disagree on which one counts."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise _DoubledError(name[:60])
        made[name] = value
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(name)


# --- Markdown with front matter -----------------------------------------------------------


def _markdown(stream: BinaryIO, label: str) -> Iterator[Raw]:
    place = f"{label}:1"
    try:
        text = stream.read().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError:
        yield Raw(place, {}, fault="the file is not UTF-8")
        return
    head, body, closed = _split(text)
    if not closed:
        yield Raw(place, {}, fault="the file has no front matter between two lines of `---`")
        return
    faults = Faults()
    tree = parse(label, head, faults)
    if faults.found or tree.fields is None:
        first = faults.found[0] if faults.found else None
        where = f"{label}:{first.line + 1}" if first else place
        reason = first.reason if first else "the front matter is not a map"
        yield Raw(where, {}, fault=f"front matter: {reason}")
        return
    fields = {name: _plain(node) for name, node in tree.fields.items()}
    if not {"id", "address"} & fields.keys():
        fields["address"] = label.removesuffix(".md")
    yield Raw(place, fields, markdown=body)


def _split(text: str) -> tuple[str, str, bool]:
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return "", text, False
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == FENCE:
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).strip("\n"), True
    return "", text, False


def _plain(node: Node) -> Any:
    match node.sort:
        case "list":
            return [_plain(one) for one in node.items]
        case "map":
            return {name: _plain(one) for name, one in (node.fields or {}).items()}
        case "integer":
            return int(node.text) if DECIMAL.fullmatch(node.text) else node.text
        case "truth":
            return node.text.lower() in ("true", "yes", "on")
        case "nothing":
            return None
    return node.text
