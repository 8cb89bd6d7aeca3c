"""Where records come from: JSON lines, and folders of Markdown with front matter.

Laws
    * Every line and every file gives exactly one thing: a record, or the reason why it is none.
    * JSON and front matter are read strictly: no doubled names, no NaN, no anchors, no text
      that turns into something else.
    * The order is fixed (files by name, lines as they stand): a checkpoint counts records.

A source is named by its last part, never by the path of the machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policies.faults import Faults
from policies.yamltree import Node, parse
from retrieval.ingest.errors import IngestRefused
from retrieval.ingest.report import printable

LINE_BYTES: Final = 16 * 1024 * 1024
FENCE: Final = "---"
DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
"""The only spelling of a number that front matter takes: YAML knows octal and base 60, too."""


@dataclass(frozen=True, slots=True)
class Raw:
    """One record as it stands in the source, or why it cannot be read (``fault``).

    ``place`` is ``file:line``. ``markdown`` is the body below the front matter.
    """

    place: str
    fields: dict[str, Any]
    markdown: str | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder, looked through once: how many records, and the digest of its bytes."""

    path: Path
    name: str
    files: tuple[Path, ...]
    total: int
    digest: str

    def __iter__(self) -> Iterator[Raw]:
        for file in self.files:
            label = self.name if file == self.path else file.relative_to(self.path).as_posix()
            yield from _markdown(file, label) if file.suffix == ".md" else _lines(file, label)


def open_source(path: Path) -> Source:
    """The source at ``path``: a ``.jsonl`` or ``.md`` file, or a folder of them.

    Raises ``IngestRefused`` ``source_absent``, ``source_unreadable`` or ``source_empty``.
    Cost: one pass over the bytes.
    """
    if not path.exists():
        raise IngestRefused("source_absent", f"there is no `{path}`", "name an existing path")
    files = (
        tuple(sorted(file for kind in ("*.md", "*.jsonl") for file in path.rglob(kind)))
        if path.is_dir()
        else (path,)
    )
    if not files or any(file.suffix not in (".md", ".jsonl") for file in files):
        raise IngestRefused(
            "source_empty",
            f"`{path}` holds no `.jsonl` and no `.md` file",
            "name a file of JSON lines, a Markdown file, or a folder of them",
        )
    total, digest = 0, hashlib.sha256()
    try:
        for file in files:
            digest.update(f"{file.relative_to(path.parent)}\n".encode("utf-8", "surrogateescape"))
            with file.open("rb") as stream:
                for line in stream:
                    digest.update(line)
                    total += file.suffix != ".md" and bool(line.strip())
            total += file.suffix == ".md"
    except OSError as error:
        raise IngestRefused(
            "source_unreadable", f"`{path}` cannot be read ({error.strerror})", "make it readable"
        ) from error
    return Source(path, printable(path.resolve().name), files, total, digest.hexdigest())


# --- JSON lines ---------------------------------------------------------------------------


def _lines(file: Path, label: str) -> Iterator[Raw]:
    with file.open("rb") as stream:
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


def _markdown(file: Path, label: str) -> Iterator[Raw]:
    place = f"{label}:1"
    try:
        text = file.read_bytes().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
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
