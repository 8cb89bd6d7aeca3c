"""Words that came, went or changed their meaning.

A new word reaches nothing until a row names it, and then the row's effect is told where it
shows. What the stored labels mean is another matter: ids that move, values that come back and
another order of strictness change what is readable without any row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from policies.review.change import Change, Direction, words
from policies.review.reading import Reading
from policies.vocabulary import FACETS, Vocabulary

AREA: Final = "vocabulary"
_LISTS: Final = ("audiences", "roles", "tasks", "tools", "purposes", "ttls")
_DERIVED: Final = ("_tuples", "_ids")
_HANDLED: Final = ("facets", "retired", "profiles", "generations", *_LISTS, *_DERIVED)


def compare(old: Reading, new: Reading) -> Iterator[Change]:
    """Every change of the closed lists; a list that this module does not know widens."""
    was, now = old.snapshot.vocabulary, new.snapshot.vocabulary
    yield from _ids(was, now)
    for facet in FACETS:
        yield from _list(facet, was.facets[facet], now.facets[facet])
        yield from _retired(facet, was.retired[facet], now.retired[facet])
    for name in _LISTS:
        yield from _list(name, getattr(was, name), getattr(now, name))
    yield from _profiles(was, now)
    for field in fields(was):
        if field.name not in _HANDLED and getattr(was, field.name) != getattr(now, field.name):
            text = "its meaning changed, and with it what labels become"
            yield Change(Direction.WIDENING, AREA, field.name, text)


def _ids(was: Vocabulary, now: Vocabulary) -> Iterator[Change]:
    before, after = was.generations, now.generations
    if after[: len(before)] != before:
        text = "ids that stored labels hold mean other states"
        yield Change(Direction.WIDENING, AREA, "classes.lock", text)
    elif len(after) > len(before):
        text = f"{now.class_count - was.class_count} ids were appended"
        yield Change(Direction.NEUTRAL, AREA, "classes.lock", text)


def _list(name: str, before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[Change]:
    added = [word for word in after if word not in before]
    gone = [word for word in before if word not in after]
    if added:
        text = f"new: {words(added)}; reaches nothing until a row names it"
        yield Change(Direction.NEUTRAL, AREA, name, text)
    if gone:
        yield Change(Direction.NARROWING, AREA, name, f"removed: {words(gone)}")


def _retired(facet: str, before: frozenset[str], after: frozenset[str]) -> Iterator[Change]:
    if after - before:
        text = f"retired: {words(sorted(after - before))}; its labels lose their class"
        yield Change(Direction.NARROWING, AREA, facet, text)
    if before - after:
        text = f"no longer retired: {words(sorted(before - after))}; its labels get a class again"
        yield Change(Direction.WIDENING, AREA, facet, text)


def _profiles(was: Vocabulary, now: Vocabulary) -> Iterator[Change]:
    yield from _list("profiles", tuple(was.profiles), tuple(now.profiles))
    for profile in was.profiles:
        audience = now.profiles.get(profile, was.profiles[profile])
        if audience != was.profiles[profile]:
            text = f"{profile} is served as {audience}, not as {was.profiles[profile]}"
            yield Change(Direction.WIDENING, AREA, "profiles", text)
