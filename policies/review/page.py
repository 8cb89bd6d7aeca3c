"""A report as people read it: headings, lines and tables, before any format.

Everything here is plain text; a writer escapes what its format needs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that stand under each other; leading blanks of a line are its depth."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Something to copy, as it stands."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: ``head`` and every row have the same number of cells."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Lines | Code | Grid


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    blocks: tuple[Block, ...]
