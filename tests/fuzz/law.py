"""What must hold of any policy folder whatsoever.

* It is refused, with faults that each name a file, a code, a reason and a remedy; or it is
  accepted, and then the table says what Casbin says.
* Accepted, it lets nobody do more than the shipped policy unless ``diff`` says that it widens.
* No other exception ever. (Hanging is the fuzzer's to notice.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from policies import congruence, soundness
from policies.errors import Fault, InvalidPolicy
from policies.faults import Faults
from policies.files import PolicyFiles, digest_of, read
from policies.loader import Parsed, parse_files
from policies.review.change import Direction
from policies.review.diff import Reach
from policies.review.diff import reach as told
from policies.review.reading import Reading
from policies.snapshot import DEFAULT_FOLDER, compiled
from tests.fuzz.reach import Able, reach

Contents = Mapping[str, bytes]


class LawBroken(Exception):
    """A folder was found of which one of the laws does not hold."""


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one folder. ``faults`` is empty when it was accepted."""

    faults: tuple[Fault, ...]
    direction: Direction = Direction.NEUTRAL
    grown: frozenset[Able] = frozenset()


class Law:
    """The laws, with the shipped policy to compare with.

    ``difference`` says which way a change goes; another one shows that the law bites.
    """

    def __init__(self, difference: Callable[[Reading, Reading], Reach] = told) -> None:
        self._difference = difference
        faults = Faults()
        shipped = read(DEFAULT_FOLDER, None, faults)
        faults.check()
        self.contents: Contents = shipped.contents
        self._base = _reading(parse_files(shipped, faults))
        self._before = reach(self._base.snapshot)

    def check(self, contents: Contents) -> Found:
        """What became of a folder of these files. Raises LawBroken, or what the loader raised."""
        faults = Faults()
        files = PolicyFiles(contents, digest_of(contents), frozenset())
        try:
            candidate = _reading(parse_files(files, faults))
            soundness.check(candidate.parsed, candidate.snapshot.table)
        except InvalidPolicy as refused:
            return Found(_sound(refused.faults))
        parsed, table = candidate.parsed, candidate.snapshot.table
        congruence.check(parsed.vocabulary, table, candidate.sets, parsed.domains)
        direction = self._difference(self._base, candidate).direction
        grown = reach(candidate.snapshot) - self._before
        if grown and direction is not Direction.WIDENING:
            raise LawBroken(f"{direction}, yet somebody {' '.join(min(grown))} ({len(grown)} more)")
        return Found((), direction, grown)


def _reading(parsed: Parsed) -> Reading:
    return Reading(Path(), parsed, *compiled(parsed))


def _sound(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    if not faults:
        raise LawBroken("refused without a fault")
    for fault in faults:
        if not (fault.file and fault.code and fault.reason and fault.remedy):
            raise LawBroken(f"a fault without its place or remedy: {fault!r}")
        if not str(fault).isprintable():
            raise LawBroken(f"a fault that cannot be shown: {fault!r}")
    return faults
