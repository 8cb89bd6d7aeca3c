"""A page as Markdown, for a comment on a change request.

Words of a policy may hold anything that its patterns allow, and reasons quote what a file
holds: what Markdown or HTML would act on is escaped, but for our own backticks.
"""

from __future__ import annotations

import re
from typing import Final

from policies.review.page import Block, Code, Grid, Heading, Lines, Page

_ACTIVE: Final = re.compile(r"([\\*_\[\]<>#|~!@&])")
_QUOTED: Final = re.compile(r"(`[^`\n]*`)")


def write(page: Page) -> str:
    """The page, ending in one line feed."""
    parts = [f"## {escaped(page.title)}", *(_block(block) for block in page.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: str, *, cell: bool = False) -> str:
    """Text that Markdown shows as it stands; backticks keep their meaning.

    A bar inside backticks still ends a table's cell, hence ``cell``.
    """
    parts = _QUOTED.split(text)
    shown = [
        (part.replace("|", "\\|") if cell else part)
        if _QUOTED.fullmatch(part)
        else _ACTIVE.sub(r"\\\1", part).replace("`", "\\`")
        for part in parts
    ]
    return "".join(shown)


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"### {escaped(block.text)}"
        case Lines():
            return "\n".join(_item(line) for line in block.lines)
        case Code():
            fence = "`" * max(3, _longest_run(block.text) + 1)
            return f"{fence}{block.language}\n{block.text}\n{fence}"
        case Grid():
            head = _row(block.head)
            rule = "| " + " | ".join("---" for _ in block.head) + " |"
            return "\n".join([head, rule, *(_row(row) for row in block.rows)])


def _item(line: str) -> str:
    text = line.lstrip(" ")
    return " " * (len(line) - len(text)) + f"- {escaped(text)}"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(escaped(cell, cell=True) for cell in cells) + " |"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
