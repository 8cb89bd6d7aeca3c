"""Text from elsewhere, made safe for a terminal.

A title or a body may hold escape sequences that move the cursor, or direction marks that make
a line read as another. They are shown as a replacement character; nothing else is changed.
"""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console
from rich.text import Text

_DIRECTION: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
_CONTROL: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_SHOWN: Final = dict.fromkeys((*_CONTROL, *_DIRECTION), "�") | {0x09: " ", 0x0A: "\n"}
_SHOWN_LINE: Final = _SHOWN | {0x0A: " "}


def plain(text: str) -> str:
    """The text on as many lines as it has, harmless."""
    return text.translate(_SHOWN)


def line(text: str) -> str:
    """The text on one line, harmless."""
    return text.translate(_SHOWN_LINE)


def styled(text: str, style: str = "") -> Text:
    """One harmless line; brackets in it are text, never markup."""
    return Text(line(text), style=style)


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """The rows as aligned lines, never folded: a trace id stays one word for a search."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(line(text).ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def console() -> Console:
    """Standard output, coloured when it is a terminal."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def errors() -> Console:
    """Standard error, for progress and notes."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
