"""Rule rows put away: what a serving process keeps of them, to be opened when somebody explains.

Deciding needs no row, only what was compiled from them. Ten thousand rows are 120,000 objects
that take 0.7 s to receive and 40 ms to free; put away they are a few hundred byte strings.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, overload

from policies.decision import Effect
from policies.faults import Place
from policies.rows import Row

SHELF_ROWS: Final = 200
"""How many rows of a small kind lie on one shelf."""

Shelf = bytes
_Kept = tuple[int, str, tuple[str, ...], str, tuple[str, int, int], bytes]


@dataclass(frozen=True, slots=True)
class StoredRows(Sequence[Row]):
    """Rows on shelves. A shelf of unit rules holds the rows of one profile, with their boxes.

    ``total`` is the number of distinct rows. Cost: opening a shelf of 50 rows takes 1 ms,
    everything else opens all of them.
    """

    total: int
    shelves: Mapping[str, Shelf]

    def naming(self, profile: str) -> tuple[tuple[Row, int], ...]:
        """The unit rules that name a profile, in file order, each with its box."""
        shelf = self.shelves.get(profile)
        return () if shelf is None else tuple((row, box) for _, row, box in _opened(shelf))

    def boxes(self) -> dict[str, int]:
        """The classes of every unit rule by rule id, as bit sets."""
        return {row.id: box for shelf in self.shelves.values() for _, row, box in _opened(shelf)}

    def __iter__(self) -> Iterator[Row]:
        found = {at: row for shelf in self.shelves.values() for at, row, _ in _opened(shelf)}
        return (found[at] for at in sorted(found))

    def __len__(self) -> int:
        return self.total

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return tuple(self)[index]


@dataclass(frozen=True, slots=True)
class StoredBoxes(Mapping[str, int]):
    """The boxes of stored rows by rule id; every use opens all shelves."""

    rows: StoredRows

    def __getitem__(self, rule_id: str) -> int:
        return self.rows.boxes()[rule_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows.boxes())

    def __len__(self) -> int:
        return self.rows.total


def unit_shelves(
    rows: Sequence[Row], boxes: Mapping[str, int], profiles: Sequence[str]
) -> Iterator[tuple[str, Shelf]]:
    """The shelf of every profile."""
    on: dict[str, list[tuple[int, Row]]] = {profile: [] for profile in profiles}
    for at, row in enumerate(rows):
        for profile in row.cells[0]:
            on[profile].append((at, row))
    for profile, found in on.items():
        yield profile, _closed([(at, row, boxes[row.id]) for at, row in found])


def shelves(rows: Sequence[Row]) -> Iterator[tuple[str, Shelf]]:
    """The rows of a small kind, some hundred to a shelf."""
    for start in range(0, len(rows), SHELF_ROWS):
        some = rows[start : start + SHELF_ROWS]
        yield f"{start}", _closed([(start + at, row, 0) for at, row in enumerate(some)])


def _closed(rows: Sequence[tuple[int, Row, int]]) -> Shelf:
    kept: list[_Kept] = [
        (
            at,
            row.id,
            tuple("|".join(sorted(cell)) for cell in row.cells),
            row.effect.value,
            (row.place.file, row.place.line, row.place.column),
            box.to_bytes((box.bit_length() + 7) // 8, "little"),
        )
        for at, row, box in rows
    ]
    return zlib.compress(pickle.dumps(kept, protocol=5), level=1)


def _opened(shelf: Shelf) -> Iterator[tuple[int, Row, int]]:
    kept: list[_Kept] = pickle.loads(zlib.decompress(shelf))  # noqa: S301 - closed by ourselves
    for at, rule_id, cells, effect, place, box in kept:
        sets = tuple(frozenset(cell.split("|")) for cell in cells)
        row = Row(rule_id, sets, Effect(effect), Place(*place))
        yield at, row, int.from_bytes(box, "little")
