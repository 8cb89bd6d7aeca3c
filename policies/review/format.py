"""``fmt``: the rule files in one form, so that a change shows what it changes and nothing else.

Cells are separated by a comma and one blank, words of a cell stand in the order of the
vocabulary, lines end without blanks, and blank lines do not pile up. Comments and the order of
rows stay: people wrote them for people. ``all`` stays ``all``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.errors import IncongruentPolicy
from policies.kinds import Shape
from policies.review.reading import Reading, read_unproven
from policies.rows import ALL, Row


@dataclass(frozen=True, slots=True)
class Formatted:
    """Files whose form differs from the canonical one, with the canonical text."""

    files: Mapping[str, str]


def canonical(reading: Reading) -> Formatted:
    """What the rule files of the folder would be. Writes nothing."""
    texts: dict[str, str] = {}
    for kind, shape in reading.parsed.shapes.items():
        before = (reading.folder / shape.file).read_text(encoding="utf-8")
        after = text(shape, before, reading.parsed.domains[kind])
        if after != before:
            texts[shape.file] = after
    return Formatted(texts)


def text(shape: Shape, before: str, domains: Mapping[str, Sequence[str]]) -> str:
    """One rule file in canonical form. Formatting what is canonical changes nothing."""
    lines: list[str] = []
    for line in before.split("\n"):
        shown = line.rstrip(" ")
        if shown and not shown.startswith("#"):
            shown = _row(shape, shown, domains)
        if shown or (lines and lines[-1]):
            lines.append(shown)
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def write(reading: Reading, formatted: Formatted) -> None:
    """Put the canonical texts in place. Raises IncongruentPolicy, with the old texts restored,
    when the folder would say something else than before; OSError."""
    kept = {file: (reading.folder / file).read_bytes() for file in formatted.files}
    for file, content in formatted.files.items():
        (reading.folder / file).write_bytes(content.encode())
    if _meaning(read_unproven(reading.folder)) != _meaning(reading):
        for file, old in kept.items():
            (reading.folder / file).write_bytes(old)
        raise IncongruentPolicy("formatting would have changed what the rules say; nothing changed")


def _row(shape: Shape, line: str, domains: Mapping[str, Sequence[str]]) -> str:
    """A row that the loader has accepted, hence of known arity."""
    mark, rule, *cells, effect = (cell.strip(" ") for cell in line.split(","))
    ordered = [
        _cell(cell, domains[column]) for column, cell in zip(shape.columns, cells, strict=True)
    ]
    return ", ".join((mark, rule, *ordered, effect))


def _cell(cell: str, known: Sequence[str]) -> str:
    if cell == ALL:
        return cell
    order = {word: position for position, word in enumerate(known)}
    return "|".join(sorted(cell.split("|"), key=lambda word: order[word]))


def _meaning(reading: Reading) -> Sequence[object]:
    return [_said(row) for row in reading.rows]


def _said(row: Row) -> tuple[object, ...]:
    return row.id, row.cells, row.effect
