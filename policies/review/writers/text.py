"""A page as plain text for a terminal."""

from __future__ import annotations

import textwrap

from policies.review.page import Block, Code, Grid, Heading, Lines, Page


def write(page: Page) -> str:
    """The page, ending in one line feed."""
    return "\n".join([page.title, *(_block(block) for block in page.blocks)]) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"\n{block.text}"
        case Lines():
            return "\n".join(f"  {line}" for line in block.lines)
        case Code():
            return textwrap.indent(block.text, "    ")
        case Grid():
            return "\n".join(f"  {line}" for line in _aligned(block))


def _aligned(grid: Grid) -> list[str]:
    rows = (grid.head, *grid.rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
