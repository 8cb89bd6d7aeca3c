"""``diff``: all that a change opens and closes, and which way it goes as a whole."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from policies.review import (
    binding_diff,
    case_diff,
    placement_diff,
    relation_diff,
    unit_diff,
    vocabulary_diff,
)
from policies.review.case_diff import Broken
from policies.review.change import Change, Direction, strongest
from policies.review.live import LiveNumbers
from policies.review.reading import Reading
from policies.review.unit_diff import ProfileDiff
from policies.snapshot import Snapshot

COMPARED: Final = frozenset(
    {"digest", "vocabulary", "table", "issuers", "routes", "upstreams", "trusted_peers", "mappings"}
    | {"thresholds"}
)
"""The parts of a snapshot that the modules of this room compare. Any other part widens."""


@dataclass(frozen=True, slots=True)
class PolicyDiff:
    """What NEW changes. ``files`` are those whose bytes differ, cases included; ``live`` is what
    a running gateway said about it, None when it was not asked."""

    old: str
    new: str
    direction: Direction
    profiles: tuple[ProfileDiff, ...]
    changes: tuple[Change, ...]
    broken: tuple[Broken, ...]
    files: tuple[str, ...]
    live: LiveNumbers | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """What NEW opens and closes, and which way that goes as a whole."""

    direction: Direction
    profiles: tuple[ProfileDiff, ...]
    changes: tuple[Change, ...]


def diff(old: Reading, new: Reading) -> PolicyDiff:
    """The difference of two policies that could both be served.

    Cost: a fraction of a second for a few edited rows; folding grows with the states touched.
    """
    found = reach(old, new)
    return PolicyDiff(
        old.snapshot.digest,
        new.snapshot.digest,
        found.direction,
        found.profiles,
        found.changes,
        case_diff.compare(old, new),
        _files(old, new),
    )


def reach(old: Reading, new: Reading) -> Reach:
    """The same without cases and files: all that needs no folder."""
    profiles = unit_diff.compare(old, new)
    changes = (
        *placement_diff.compare(old, new),
        *relation_diff.compare(old, new),
        *vocabulary_diff.compare(old, new),
        *binding_diff.compare(old, new),
        *_unknown(old.snapshot, new.snapshot),
    )
    directions = [change.direction for change in changes]
    directions += [Direction.WIDENING for profile in profiles if profile.gained]
    directions += [Direction.NARROWING for profile in profiles if profile.lost]
    return Reach(strongest(directions), profiles, changes)


def _unknown(old: Snapshot, new: Snapshot) -> tuple[Change, ...]:
    """Parts of a snapshot that nobody here compares: a difference there is told and widens."""
    return tuple(
        Change(Direction.WIDENING, "snapshot", field.name, "it changed, and no tool can say how")
        for field in fields(old)
        if field.compare
        and field.name not in COMPARED
        and getattr(old, field.name) != getattr(new, field.name)
    )


def _files(old: Reading, new: Reading) -> tuple[str, ...]:
    before, after = (_contents(reading) for reading in (old, new))
    names = sorted(before.keys() | after.keys())
    return tuple(name for name in names if before.get(name) != after.get(name))


def _contents(reading: Reading) -> dict[str, bytes]:
    return {
        path.relative_to(reading.folder).as_posix(): path.read_bytes()
        for part in ("rules", "models", "mappings", "cases")
        for path in sorted((reading.folder / part).rglob("*"))
        if path.is_file()
    }
