"""Collecting what is wrong with a policy folder: all of it, each with a place and a remedy.

A reader never stops at the first fault. It records it here, goes on with a harmless
value, and whoever asked throws the result away when ``Faults.check`` raises.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from policies.errors import Fault, InvalidPolicy


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a policy file; line and column start at 1, 0 = the whole file."""

    file: str
    line: int = 0
    column: int = 0

    @property
    def at(self) -> str:
        """``file:line``, or the file alone where the whole of it is meant."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(slots=True)
class Faults:
    """The faults found so far."""

    found: list[Fault] = field(default_factory=list)

    def add(self, place: Place, code: str, reason: str, remedy: str) -> None:
        self.found.append(Fault(place.file, place.line, place.column, code, reason, remedy))

    def unknown(self, place: Place, what: str, word: str, known: Collection[str]) -> None:
        """Record a word that is not in a closed list, with the nearest one that is."""
        self.add(place, "unknown_word", f"{shown(word)} is not a known {what}", advice(word, known))

    def check(self) -> None:
        """Raises InvalidPolicy when anything was found."""
        if self.found:
            raise InvalidPolicy(self.found)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.found)


def advice(word: str, known: Collection[str]) -> str:
    """What to write instead of an unknown word: the nearest known one, else where to look."""
    near = difflib.get_close_matches(word.strip().lower(), sorted(known), n=1, cutoff=0.5)
    if near:
        return f"did you mean `{near[0]}`"
    if not known:
        return "none is known: mend the file that lists them first"
    if len(known) <= 8:
        return "use one of " + ", ".join(f"`{value}`" for value in sorted(known))
    return "use a word of rules/vocabulary.yaml, or add it there first"


def shown(text: str) -> str:
    """A value in backticks, with everything invisible or non-ASCII written out."""
    plain = text.encode("unicode_escape").decode("ascii")
    return f"`{plain[:80]}…`" if len(plain) > 80 else f"`{plain}`"
