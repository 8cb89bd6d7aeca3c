"""A policy folder as a reviewer's tool needs it: rows with places, table, sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from policies.kinds import Kind
from policies.loader import Parsed, parse
from policies.rows import Row
from policies.snapshot import DEFAULT_FOLDER, Snapshot, compiled, proven
from policies.table import FacetSets


@dataclass(frozen=True, slots=True)
class Reading:
    """One revision, parsed and compiled. ``folder`` is where its cases are."""

    folder: Path
    parsed: Parsed
    snapshot: Snapshot
    sets: FacetSets

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all kinds, in file order, the kinds in their own order."""
        return tuple(row for kind in Kind for row in self.parsed.rows[kind])


def read(folder: Path = DEFAULT_FOLDER, overlay: Path | None = None) -> Reading:
    """A folder that could be served. Raises what ``policies.snapshot.load`` raises."""
    parsed = parse(folder, overlay)
    snapshot = proven(parsed)
    return Reading(folder, parsed, snapshot, FacetSets(parsed.vocabulary))


def of_parsed(parsed: Parsed) -> Reading:
    """Files that lie in no folder, hence without cases; compiled, not proven."""
    return Reading(Path(os.devnull), parsed, *compiled(parsed))


def read_unproven(folder: Path = DEFAULT_FOLDER, overlay: Path | None = None) -> Reading:
    """A folder whose files are free of faults, although it might not be served.

    For ``lint`` and ``fmt``, which must speak about a folder that says nonsense. Raises
    InvalidPolicy for faults of the files.
    """
    parsed = parse(folder, overlay)
    return Reading(folder, parsed, *compiled(parsed))
