"""The unit rules in the languages of the engines that stand beside ours in ``make bench``.

Each text holds the same rows in the same order, cell by cell: a row is a conjunction of set
tests, an allow row permits, and a deny row beats every allow row. Written the way each
language's own guide writes such a rule, so that no engine is made to look slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from policies.decision import Effect
from policies.kinds import SHAPES, Kind
from policies.rows import Row

COLUMNS: Final = SHAPES[Kind.UNITS].axes


def cedar(rows: Sequence[Row]) -> str:
    """One policy per row; the request's words are its context."""
    return "\n".join(
        f'@id("{row.id}")\n'
        + ("permit" if row.effect is Effect.ALLOW else "forbid")
        + " (principal, action, resource) when {\n  "
        + " &&\n  ".join(f"{words}.contains(context.{name})" for name, words in _tests(row))
        + "\n};"
        for row in rows
    )


def rego(rows: Sequence[Row]) -> str:
    """One partial rule per row under ``data.gate``; ``allow`` is the decision."""
    rules = [
        f"{'permitted' if row.effect is Effect.ALLOW else 'forbidden'} if {{  # {row.id}\n"
        + "\n".join(f"  input.{name} in {{{words[1:-1]}}}" for name, words in _tests(row))
        + "\n}"
        for row in rows
    ]
    head = [
        "package gate",
        "import rego.v1",
        "default allow := false",
        "allow if {\n  permitted\n  not forbidden\n}",
    ]
    return "\n\n".join([*head, *rules]) + "\n"


def cel(rows: Sequence[Row]) -> str:
    """One expression over the words: any allow row and no deny row."""
    sides = {
        effect: " ||\n  ".join(
            "(" + " && ".join(f"{name} in {words}" for name, words in _tests(row)) + ")"
            for row in rows
            if row.effect is effect
        )
        for effect in Effect
    }
    return f"({sides[Effect.ALLOW] or 'false'}) && !({sides[Effect.DENY] or 'false'})"


LANGUAGES: Final[Mapping[str, Callable[[Sequence[Row]], str]]] = {
    "cedarpy": cedar,
    "regorus": rego,
    "common-expression-language": cel,
}
"""By the name of the engine that reads it."""


def _tests(row: Row) -> list[tuple[str, str]]:
    """The columns with their words as a list literal, which all three write as JSON does."""
    return [(name, json.dumps(sorted(cell))) for name, cell in zip(COLUMNS, row.cells, strict=True)]
