"""Rule rows: one CSV file of one decision kind, read strictly.

A row is ``p, rule id, one cell per column, eft``. A cell is one word or several joined by
``|``. The word ``all`` stands for every word of the column, now and later, and may stand
in deny rows only: in an allow row it would open tomorrow's words without anybody asking.

This is not general CSV on purpose: quotes, commas in values, inline comments and patterns
each mean something else to some reader than to Casbin, so none of them is accepted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies.decision import Effect
from policies.faults import Faults, Place, advice, shown
from policies.kinds import Kind, Shape

ALL: Final = "all"
ROWS_MAX: Final = 20_000
TUPLES_MAX: Final = 1_000_000
"""Requests that the rows of one small kind may name together: half a gigabyte when compiled."""
_RULE_ID: Final = re.compile(r"[A-Z][A-Z0-9]*(-[A-Z0-9]+)+")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")


@dataclass(frozen=True, slots=True)
class Row:
    """One rule. ``cells`` are sets in the order of ``Shape.axes``."""

    id: str
    cells: tuple[frozenset[str], ...]
    effect: Effect
    place: Place


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    place: Place


def read_rows(
    shape: Shape, text: str, domains: Mapping[str, Sequence[str]], faults: Faults
) -> tuple[Row, ...]:
    """The rows of one file. ``domains`` lists the known words of every column."""
    rows: list[Row] = []
    before = len(faults.found)
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(" ") or line.startswith("#"):
            continue
        row = _read_row(shape, _split(shape.file, number, line), domains, faults)
        if row is not None:
            rows.append(row)
    if not rows and len(faults.found) == before:  # rows with a fault are told themselves
        faults.add(
            Place(shape.file),
            "no_rules",
            "the file holds no rule, which would decide nothing or anything",
            "restore its rows",
        )
    if len(rows) > ROWS_MAX:
        faults.add(Place(shape.file), "too_many_rules", "over 20,000 rows", "join rows with `|`")
    if shape.kind is not Kind.UNITS:  # those are compiled to sets of classes
        _check_bounded(rows, faults)
    _check_distinct(rows, faults)
    return tuple(rows)


def _check_bounded(rows: Sequence[Row], faults: Faults) -> None:
    named = 0
    for row in rows:
        named += math.prod(map(len, row.cells))
        if named > TUPLES_MAX:
            faults.add(
                row.place,
                "too_many_requests",
                f"the rows so far name {named:,} requests, over {TUPLES_MAX:,}",
                "name fewer words in one row",
            )
            return


def _split(file: str, number: int, line: str) -> list[_Cell]:
    cells: list[_Cell] = []
    offset = 0
    for part in line.split(","):
        inner = part.strip(" ")
        cells.append(
            _Cell(inner, Place(file, number, offset + len(part) - len(part.lstrip(" ")) + 1))
        )
        offset += len(part) + 1
    return cells


def _read_row(
    shape: Shape, cells: list[_Cell], domains: Mapping[str, Sequence[str]], faults: Faults
) -> Row | None:
    before = len(faults.found)
    if cells[0].text != "p":
        faults.add(
            cells[0].place,
            "unknown_row_type",
            f"a row starts with `p`, not with {shown(cells[0].text)}; it would be dropped",
            "start it with `p,`, or with `#` to make it a comment",
        )
        return None
    wanted = len(shape.columns) + 3
    if len(cells) != wanted:
        faults.add(
            cells[0].place,
            "wrong_arity",
            f"the row has {len(cells)} cells where {wanted} are declared"
            f" (p, id, {', '.join(shape.columns)}, eft)",
            "check for a missing or an extra comma; several values are joined by `|`",
        )
        return None
    if not _RULE_ID.fullmatch(cells[1].text):
        faults.add(
            cells[1].place,
            "bad_rule_id",
            f"{shown(cells[1].text)} is not a rule id",
            "write upper-case words joined by `-`, such as `U-CUS-1`",
        )
    effect = _effect(cells[-1], faults)
    sets = {
        column: _values(cell, column, effect, domains[column], faults)
        for column, cell in zip(shape.columns, cells[2:-1], strict=True)
    }
    if len(faults.found) > before or effect is None:
        return None
    return Row(cells[1].text, _paired(shape, sets), effect, cells[1].place)


def _effect(cell: _Cell, faults: Faults) -> Effect | None:
    if cell.text not in (Effect.ALLOW, Effect.DENY):
        faults.add(
            cell.place,
            "bad_effect",
            f"eft is {shown(cell.text)}; Casbin would ignore the row without a word",
            "write exactly `allow` or `deny`; a comment needs a line of its own",
        )
        return None
    return Effect(cell.text)


def _values(
    cell: _Cell, column: str, effect: Effect | None, known: Sequence[str], faults: Faults
) -> frozenset[str]:
    if cell.text == ALL:
        if effect is Effect.ALLOW:
            faults.add(
                cell.place,
                "all_in_allow",
                f"`all` in the {column} of an allow row would open words that do not exist yet",
                "list the values, joined by `|`",
            )
        return frozenset(known)
    values: set[str] = set()
    column_at = cell.place.column
    for word in cell.text.split("|"):
        place = Place(cell.place.file, cell.place.line, column_at)
        column_at += len(word) + 1
        if not _WORD.fullmatch(word):
            faults.add(
                place,
                "bad_token",
                f"{shown(word)} in {column} is not one plain word",
                "write ASCII letters, digits and `_ . : -`, without blanks, quotes or patterns",
            )
        elif word in values:
            faults.add(place, "duplicate_word", f"{shown(word)} stands here twice", "remove one")
        elif word not in known:
            faults.add(
                place,
                "unknown_word",
                f"{shown(word)} is not a known {column}; the rule would never match it",
                advice(word, known),
            )
        values.add(word)
    return frozenset(values)


def _paired(shape: Shape, sets: Mapping[str, frozenset[str]]) -> tuple[frozenset[str], ...]:
    if shape.paired is None:
        return tuple(sets[column] for column in shape.columns)
    first, second = shape.paired
    pairs = frozenset(f"{a}={b}" for a in sets[first] for b in sets[second])
    return tuple(
        pairs if column == first else sets[column] for column in shape.columns if column != second
    )


def _check_distinct(rows: Sequence[Row], faults: Faults) -> None:
    ids: dict[str, Row] = {}
    contents: dict[tuple[tuple[frozenset[str], ...], Effect], Row] = {}
    for row in rows:
        if row.id in ids:
            faults.add(
                row.place,
                "duplicate_rule_id",
                f"rule id `{row.id}` is taken by line {ids[row.id].place.line}",
                "give every rule its own id",
            )
        elif (row.cells, row.effect) in contents:
            twin = contents[row.cells, row.effect]
            faults.add(
                row.place,
                "duplicate_rule",
                f"`{row.id}` says the same as `{twin.id}`; removing one would change nothing",
                "remove one of them",
            )
        ids.setdefault(row.id, row)
        contents.setdefault((row.cells, row.effect), row)
