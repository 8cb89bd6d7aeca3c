"""Readings made from rows alone, small enough to compare state by state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from policies.bindings import IssuerBinding
from policies.decision import Effect, PolicyDigest
from policies.kinds import SHAPES, Kind
from policies.loader import Parsed
from policies.review.reading import Reading
from policies.rows import Row
from policies.snapshot import compiled
from policies.vocabulary import Vocabulary


def reading(
    vocabulary: Vocabulary,
    rows: Mapping[Kind, Sequence[Row]],
    issuers: tuple[IssuerBinding, ...] = (),
) -> Reading:
    """A compiled, unproven policy of these rows."""
    digest = PolicyDigest(hashlib.sha256(repr((vocabulary, rows, issuers)).encode()).hexdigest())
    parsed = Parsed(
        digest,
        vocabulary,
        SHAPES,
        {kind: tuple(rows.get(kind, ())) for kind in Kind},
        {Kind.AGENTS: {"task": vocabulary.tasks, "tool": vocabulary.tools}},
        issuers,
        (),
        {},
        (),
        {},
    )
    return Reading(Path(), parsed, *compiled(parsed))


def matches(row: Row, request: Sequence[str]) -> bool:
    """Whether a row matches a request of single words, read off the row itself."""
    return all(word in cell for word, cell in zip(request, row.cells, strict=True))


def allowed(rows: Sequence[Row], request: Sequence[str]) -> bool:
    """The verdict on a request, by the definition and not by the compiler."""
    effects = {row.effect for row in rows if matches(row, request)}
    return effects == {Effect.ALLOW}
