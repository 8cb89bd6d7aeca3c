"""A table of marks as SVG: readable in print and by a screen reader, without scripts or fonts.

A mark is told by its shape and its word, never by colour alone; every cell carries its own
title. Colours come from the reader's scheme: dark text on light or light on dark.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ROW, COLUMN, LEFT, PAD = 22, 74, 210, 16
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#1a1a1a}"
    ".head{font-weight:600}.paper{fill:#ffffff}.stripe{fill:#f1f3f5}"
    ".yes{fill:#1b5e3a}.consent{fill:none;stroke:#8a5200;stroke-width:2.5}"
    ".no{stroke:#8a8f98;stroke-width:1.5}"
    "@media (prefers-color-scheme:dark){text{fill:#f1f3f5}.paper{fill:#16181c}"
    ".stripe{fill:#22262c}.yes{fill:#7fd6a5}.consent{stroke:#ffc267}.no{stroke:#7b828c}}"
)
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Section:
    """Rows under one heading: each a name and a mark per column."""

    title: str
    rows: Mapping[str, Sequence[str]]


def write(title: str, description: str, columns: Sequence[str], sections: Sequence[Section]) -> str:
    """The table. Marks are ``yes``, ``consent`` and ``no``; a legend says what they mean."""
    lines = sum(len(section.rows) + 1 for section in sections)
    slant = 6 * max(map(len, columns), default=0)  # how far a turned head reaches, up and right
    top = 3 * ROW + slant
    width = LEFT + COLUMN * len(columns) + max(slant, COLUMN)
    height = top + ROW * lines + 3 * ROW
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width} {height}",
            "width": str(width),
            "height": str(height),
            "role": "img",
            "aria-labelledby": "title desc",
        },
    )
    _text_element(root, "title", title, id="title")
    _text_element(root, "desc", description, id="desc")
    _text_element(root, "style", _STYLE)
    ET.SubElement(root, "rect", {"class": "paper", "width": str(width), "height": str(height)})
    _label(root, PAD, PAD + 14, title, "head")
    _heads(root, top, columns)
    _body(root, (width, top), columns, sections)
    _legend(root, height - ROW)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _heads(root: ET.Element, top: int, columns: Sequence[str]) -> None:
    for number, name in enumerate(columns):
        x, y = LEFT + PAD + COLUMN * number + COLUMN // 2, top - 10
        head = _label(root, x, y, name, "head")
        head.set("transform", f"rotate(-40 {x} {y})")


def _body(
    root: ET.Element, size: tuple[int, int], columns: Sequence[str], sections: Sequence[Section]
) -> None:
    width, y = size
    for section in sections:
        y += ROW
        _label(root, PAD, y, section.title, "head")
        for number, (name, marks) in enumerate(section.rows.items()):
            y += ROW
            if number % 2 == 0:
                ET.SubElement(
                    root,
                    "rect",
                    {"class": "stripe", "x": str(PAD), "y": str(y - ROW + 6),
                     "width": str(width - 2 * PAD), "height": str(ROW)},
                )  # fmt: skip
            _label(root, 2 * PAD, y, name)
            for column, (head, mark) in enumerate(zip(columns, marks, strict=True)):
                x = LEFT + PAD + COLUMN * column + COLUMN // 2
                _mark(root, x, y - 4, mark, f"{head}, {section.title} {name}: {mark}")


def _mark(root: ET.Element, x: int, y: int, mark: str, told: str = "") -> None:
    if mark == "no":
        ends = {"x1": str(x - 4), "x2": str(x + 4), "y1": str(y), "y2": str(y)}
        shape = ET.SubElement(root, "line", {"class": "no", **ends})
    else:
        circle = {"class": mark, "cx": str(x), "cy": str(y), "r": "5.5"}
        shape = ET.SubElement(root, "circle", circle)
    if told:
        _text_element(shape, "title", told)


def _legend(root: ET.Element, y: int) -> None:
    meanings = (
        ("yes", "reads some state of this value"),
        ("consent", "with a consent only"),
        ("no", "reads none"),
    )
    for number, (mark, meaning) in enumerate(meanings):
        x = PAD + 8 + 230 * number
        _mark(root, x, y - 4, mark)
        _label(root, x + 14, y, meaning)


def _label(root: ET.Element, x: int, y: int, text: str, css: str = "") -> ET.Element:
    attributes = {"x": str(x), "y": str(y)} | ({"class": css} if css else {})
    return _text_element(root, "text", text, **attributes)


def _text_element(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = _FORBIDDEN.sub("\ufffd", text)
    return element
