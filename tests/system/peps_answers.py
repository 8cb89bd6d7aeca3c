"""What an answer of the gateway holds, found in its bytes and not by its shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from tests.system.callers import Reply
from tests.system.peps_rules import Library, Section

_ADDRESS: Final = re.compile(rb'"(peps/[^"\\]*)"')
_ID: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LINE_END: Final = re.compile(rb'\\n|"')
_CANARY_MIN: Final = 40


def addresses_in(reply: Reply) -> set[str]:
    """Every canonical address, wherever it stands: unit, link, citation, reading order."""
    return {found.decode() for found in _ADDRESS.findall(reply.body)}


def ids_in(reply: Reply) -> set[UUID]:
    """Every id but the request's own."""
    return {UUID(found.decode()) for found in _ID.findall(reply.unnamed)}


def units_in(reply: Reply) -> set[str]:
    """Addresses of the units whose text stands in the answer; texts must be the source's."""
    return {one["canonical_address"] for one in refs_in(reply.json())}


def refs_in(value: Any) -> Iterator[dict[str, Any]]:
    """Everything in a JSON document that carries a text."""
    if isinstance(value, dict):
        if "text" in value:
            yield value
        for inner in value.values():
            yield from refs_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs_in(inner)


def canaries(library: Library, allowed: set[str]) -> set[bytes]:
    """Lines of forbidden sections that no allowed section has, as they would stand in JSON."""
    open_lines = {line for one in allowed for line in _lines(library.sections[one])}
    hidden = (s for one, s in library.sections.items() if one not in allowed)
    return {line.encode() for s in hidden for line in _lines(s) if line not in open_lines}


def lines_in(reply: Reply) -> set[bytes]:
    """The lines of all texts of an answer, found in its bytes."""
    return set(_LINE_END.split(reply.body))


def _lines(section: Section) -> Iterator[str]:
    for line in section.text.split("\n"):
        if len(line) >= _CANARY_MIN and line.isascii() and not {'"', "\\", "\t"} & set(line):
            yield line
