"""Which cases and invariants a change breaks: the old ones under the new policy, and its own.

The old cases count although the change removes them: taking an invariant away together with
what it forbids is the very edit that a reviewer must see.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies import casework
from policies.errors import InvalidPolicy
from policies.review.reading import Reading


@dataclass(frozen=True, slots=True)
class Broken:
    """A case that does not hold under the new policy. ``cases`` is ``old`` when only the old
    revision's cases say so, ``new`` when the new revision's own do."""

    cases: str
    at: str
    name: str
    problems: tuple[str, ...]


def compare(old: Reading, new: Reading) -> tuple[Broken, ...]:
    """What held before and does not any more, and what the new revision's cases object to."""
    found = [
        *_objections("new", new, new),
        *_objections("old", old, new, held=_holding(old)),
    ]
    told: dict[tuple[str, tuple[str, ...]], Broken] = {}
    for one in found:
        told.setdefault((one.name, one.problems), one)
    return tuple(told.values())


def _holding(reading: Reading) -> set[tuple[str, str]] | None:
    """The cases that hold under their own policy; None when they cannot be read."""
    try:
        outcomes = casework.run(reading.folder, reading.snapshot).outcomes
    except InvalidPolicy:
        return None
    return {(outcome.place.at, outcome.name) for outcome in outcomes if outcome.passed}


def _objections(
    which: str, cases: Reading, policy: Reading, held: set[tuple[str, str]] | None = None
) -> list[Broken]:
    try:
        failures = casework.run(cases.folder, policy.snapshot).failures
    except InvalidPolicy as error:
        problems = tuple(map(str, error.faults))
        return [Broken(which, "cases", "the cases cannot be read under the new policy", problems)]
    return [
        Broken(which, failure.place.at, failure.name, failure.problems)
        for failure in failures
        if held is None or (failure.place.at, failure.name) in held
    ]
