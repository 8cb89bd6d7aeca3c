"""How much of what is live a change touches: what to ask the running gateway, and how it is told.

The numbers are the gateway's; this module knows neither it nor a database.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policies.review.page import Block, Grid, Heading, Lines
from policies.review.reading import Reading
from policies.review.unit_diff import translated
from policies.table import members
from policies.vocabulary import CONSENTS


@dataclass(frozen=True, slots=True)
class ProfileClasses:
    """Classes that a profile gains and loses, under any consent, by the ids of OLD's lock."""

    profile: str
    gained: tuple[int, ...]
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Touched:
    """Numbers, or orders of magnitude as text. ``ids`` are None where none were asked for;
    ``more`` says that the one who asked may read others, too."""

    units: int | str
    threads: int | str
    ids: tuple[str, ...] | None
    more: bool


@dataclass(frozen=True, slots=True)
class ProfileTouched:
    """How much of what is live one profile would gain and lose."""

    profile: str
    gained: Touched
    lost: Touched


@dataclass(frozen=True, slots=True)
class LiveNumbers:
    """``digest`` is of the policy in force when they were counted."""

    mode: str
    digest: str
    profiles: tuple[ProfileTouched, ...]


def classes_of(old: Reading, new: Reading) -> tuple[ProfileClasses, ...]:
    """What to count for a change, for each profile that reads something else than before.

    Ids are those under which units are stored while OLD is in force; a value that only NEW
    knows has no unit yet.
    """
    profiles = [*new.snapshot.vocabulary.profiles, *old.snapshot.vocabulary.profiles]
    found = []
    for profile in dict.fromkeys(profiles):
        gained = lost = 0
        for consent in CONSENTS:
            was = old.snapshot.table.units.readable.get((profile, consent), 0)
            now = translated(
                new.snapshot.table.units.readable.get((profile, consent), 0),
                new.snapshot.vocabulary,
                old.snapshot.vocabulary,
            )
            gained |= now & ~was
            lost |= was & ~now
        if gained or lost:
            found.append(ProfileClasses(profile, members(gained), members(lost)))
    return tuple(found)


def blocks(numbers: LiveNumbers, old_digest: str) -> Iterator[Block]:
    """The numbers for people."""
    yield Heading("What is live of it")
    notes = ["units and threads of the states that a profile gains or loses, of every tenant"]
    if numbers.digest != old_digest:
        notes.append(f"OLD is not in force: {numbers.digest[:12]} is, and its units were counted")
    yield Lines(tuple(notes))
    if not numbers.profiles:
        yield Lines(("no profile reads other states than before",))
        return
    head = ("profile", "units gained", "threads gained", "units lost", "threads lost")
    rows = tuple(
        (one.profile, *map(str, (one.gained.units, one.gained.threads)),
         *map(str, (one.lost.units, one.lost.threads)))
        for one in numbers.profiles
    )  # fmt: skip
    yield Grid(head, rows)
    for one in numbers.profiles:
        for sign, side in (("+", one.gained), ("-", one.lost)):
            if side.ids is not None and (side.ids or side.units):
                yield Lines(tuple(_ids(f"{sign} {one.profile}", side)))


def _ids(head: str, side: Touched) -> Iterator[str]:
    if not side.ids:
        yield f"{head}: none that you may read"
        return
    yield f"{head}: of those that you may read" + (", the first" if side.more else "")
    yield from (f"  {one}" for one in side.ids or ())
