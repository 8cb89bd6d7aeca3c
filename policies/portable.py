"""A snapshot as parts small enough to be received between two requests, and made whole again.

A process that serves cannot build a policy: compiling and proving ten thousand rules takes half
a minute of processor time, and even unpickling the result would hold everybody up for most of a
second. So another process builds it and takes it apart; here each part costs some tenths of a
millisecond, and whoever puts them together lets others work between two of them.

Laws
    * Parts come from a process of ours over a pipe of ours. Nothing else may be added.
    * The whole decides as the original does. Its rows are stored (``policies.stored``).
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

from policies.decision import PolicyDigest
from policies.kinds import SHAPES, Kind
from policies.snapshot import Snapshot
from policies.stored import StoredBoxes, StoredRows, shelves, unit_shelves
from policies.table import DecisionTable, Relation, UnitTable, Verdict
from policies.vocabulary import Vocabulary

_CLASSES: Final = 250
_ENTRIES: Final = 50
_MASKS: Final = 32
_SHELVES_BYTES: Final = 65_536
Item = TypeVar("Item")
Part = tuple[str, Any]


def parts_of(snapshot: Snapshot) -> Iterator[bytes]:
    """The snapshot in parts, in the order in which they have to be added."""
    sent = 0
    for part in _parts(snapshot):
        yield pickle.dumps(part, protocol=5)
        sent += 1
    yield pickle.dumps(("end", (snapshot.digest, sent)), protocol=5)


def packed(snapshot: Snapshot) -> Snapshot:
    """The same snapshot as it would arrive from elsewhere: its rows stored, quick to let go of.

    Cost: 20 ms for the default policy, 0.3 s for 10,000 rules; for the start of a process.
    """
    assembly = Assembly()
    for part in parts_of(snapshot):
        assembly.add(part)
    return assembly.whole()


def _parts(snapshot: Snapshot) -> Iterator[Part]:
    vocabulary, units = snapshot.vocabulary, snapshot.table.units
    named = [one.name for one in fields(Vocabulary) if one.init]
    yield "vocabulary", {name: getattr(vocabulary, name) for name in named}
    for some in _batches(vocabulary.classes, _CLASSES):
        spent = [class_id for class_id, _ in some if vocabulary.is_retired(class_id)]
        yield "classes", ([values for _, values in some], spent)
    for masks in _batches(units.readable.items(), _MASKS):
        yield "readable", masks
    stored = unit_shelves(units.rows, units.boxes, list(vocabulary.profiles))
    for lot in _lots(stored):
        yield "shelves", (Kind.UNITS.value, lot)
    for kind, relation in snapshot.table.relations.items():
        for lot in _lots(shelves(relation.rows)):
            yield "shelves", (kind.value, lot)
        told = ((key, one.allows, one.denies) for key, one in relation.entries.items())
        for entries in _batches(told, _ENTRIES):
            yield "entries", (kind.value, entries)
    counts = {Kind.UNITS.value: len(units.rows)} | {
        kind.value: len(relation.rows) for kind, relation in snapshot.table.relations.items()
    }
    yield "counts", (units.class_count, counts)
    for name in ("issuers", "routes", "upstreams", "trusted_peers", "mappings", "thresholds"):
        yield "field", (name, getattr(snapshot, name))


class Assembly:
    """Puts the parts of one snapshot together. Cost of a part: 0.1 to 0.3 ms."""

    def __init__(self) -> None:
        self._vocabulary: dict[str, Any] = {}
        self._tuples: list[tuple[str, ...]] = []
        self._ids: dict[tuple[str, ...], int] = {}
        self._readable: dict[tuple[str, str], int] = {}
        self._shelves: dict[str, dict[str, bytes]] = {}
        self._entries: dict[str, dict[tuple[str, ...], Verdict]] = {}
        self._class_count = 0
        self._counts: dict[str, int] = {}
        self._fields: dict[str, Any] = {}
        self._digest = ""
        self._added = 0

    def add(self, part: bytes) -> None:
        """Take one part in. They come in order and none may be missing."""
        name, content = pickle.loads(part)  # noqa: S301 - see the laws
        if name == "end":
            self._digest = content[0] if content[1] == self._added else ""
            return
        self._added += 1
        match name:
            case "vocabulary":
                self._vocabulary = content
            case "classes":
                values, spent = content
                start, without = len(self._tuples), set(spent)
                self._tuples += values
                self._ids |= {
                    one: number for number, one in enumerate(values, start) if number not in without
                }
            case "readable":
                self._readable |= dict(content)
            case "shelves":
                self._shelves.setdefault(content[0], {}).update(content[1])
            case "entries":
                kind, told = content
                entries = self._entries.setdefault(kind, {})
                entries |= {key: Verdict(allows, denies) for key, allows, denies in told}
            case "counts":
                self._class_count, self._counts = content
            case "field":
                self._fields[content[0]] = content[1]
            case _:
                raise ValueError(f"a snapshot has no part `{name}`")

    def whole(self) -> Snapshot:
        """The snapshot. Raises ValueError when a part is missing."""
        if not self._digest:
            raise ValueError("a part of the snapshot is missing")
        vocabulary = Vocabulary.restored(self._vocabulary, tuple(self._tuples), self._ids)
        rows = self._rows(Kind.UNITS)
        units = UnitTable(
            self._class_count, vocabulary.profiles, rows, StoredBoxes(rows), self._readable
        )
        relations: dict[Kind, Relation] = {
            kind: Relation(SHAPES[kind], self._rows(kind), self._entries.get(kind.value, {}))
            for kind in Kind
            if kind is not Kind.UNITS
        }
        return Snapshot(
            digest=PolicyDigest(self._digest),
            vocabulary=vocabulary,
            table=DecisionTable(units, relations),
            **self._fields,
        )

    def _rows(self, kind: Kind) -> StoredRows:
        return StoredRows(self._counts.get(kind.value, 0), self._shelves.get(kind.value, {}))


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch


def _lots(stored: Iterable[tuple[str, bytes]]) -> Iterator[Mapping[str, bytes]]:
    """Shelves, as many together as one part should hold."""
    lot: dict[str, bytes] = {}
    size = 0
    for name, shelf in stored:
        if lot and size + len(shelf) > _SHELVES_BYTES:
            yield lot
            lot, size = {}, 0
        lot[name] = shelf
        size += len(shelf)
    if lot:
        yield lot
