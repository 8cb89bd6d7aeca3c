"""Rules that do nothing, or that two say: computed from per-rule bit masks, exactly.

Theory (units). Within one profile and consent, ``once`` holds the states that some allow row
matches and ``twice`` those that two match; ``box & ~twice`` are the states that a row alone
opens. What of them no deny row takes is what its removal would change. For deny rows likewise.

Theory (small kinds). A request that carries several words of one axis meets the rows of all
its tuples. An allow row matters where it is the only one on a tuple that no row denies: the
request of that tuple alone shows it. A deny row matters where it is the only one on a tuple
and some tuple with another word of the many-valued axis is allowed by a row and denied by
none but it: the request of the two words shows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from policies.decision import Effect
from policies.kinds import Kind
from policies.review.finding import Finding, Level
from policies.review.reading import Reading
from policies.rows import Row
from policies.table import SILENCE, Relation, Verdict

_MINE = "remove it, unless it is meant as a safety net for rows to come"


@dataclass(slots=True)
class _Seen:
    """What the sections of a rule have shown so far."""

    effective: bool = False
    """Some request is decided otherwise without it."""
    opens: bool = False
    """An allow row: something that it matches is not denied."""
    covers: set[str] | None = None
    """Rows of its effect that match all that it matches, in every section."""
    cut: dict[str, int] = field(default_factory=dict)
    """Deny rows that take from it, and how many single requests each takes."""


def findings(reading: Reading) -> Iterator[Finding]:
    """Dead, shadowed, redundant, idle and overlapping rules of every kind, by file and line."""
    units = _units(reading)
    for row in reading.parsed.rows[Kind.UNITS]:
        yield from _of(row, units[row.id])
    for relation in reading.snapshot.table.relations.values():
        seen = _relation(relation)
        for row in relation.rows:
            yield from _of(row, seen[row.id])


def removable(reading: Reading) -> frozenset[str]:
    """The ids of rules without any one of which no decision would change."""
    seen = dict(_units(reading))
    for relation in reading.snapshot.table.relations.values():
        seen |= _relation(relation)
    return frozenset(rule for rule, one in seen.items() if not one.effective)


def _of(row: Row, seen: _Seen) -> Iterator[Finding]:
    name = f"`{row.id}`"
    if row.effect is Effect.ALLOW and not seen.opens:
        text = f"{name} allows nothing: deny rows take all of it"
        yield Finding(row.place, Level.ERROR, "dead_rule", text, "remove it, or the deny row")
    elif not seen.effective and seen.covers:
        cover = min(seen.covers)
        text = f"all that {name} matches is matched by `{cover}`, which decides the same"
        yield Finding(row.place, Level.WARNING, "shadowed_rule", text, "remove one of them")
    elif not seen.effective and row.effect is Effect.ALLOW:
        text = f"without {name} no decision would change: other rows allow what it opens"
        yield Finding(row.place, Level.WARNING, "redundant_rule", text, "remove it")
    elif not seen.effective:
        text = f"{name} denies nothing that is not denied without it"
        yield Finding(row.place, Level.NOTE, "idle_deny", text, _MINE)
    for deny, count in sorted(seen.cut.items()):
        text = f"{name} loses {count} decisions to `{deny}`"
        remedy = "fine if meant; else narrow the allow row, so that it says what it opens"
        yield Finding(row.place, Level.NOTE, "overlapping_rules", text, remedy)


def _units(reading: Reading) -> Mapping[str, _Seen]:
    table = reading.snapshot.table.units
    seen = {row.id: _Seen() for row in table.rows}
    sections: dict[tuple[str, str], list[Row]] = {}
    for row in table.rows:
        for section in itertools.product(row.cells[0], row.cells[-1]):
            sections.setdefault(section, []).append(row)
    for rows in sections.values():
        allows = [row for row in rows if row.effect is Effect.ALLOW]
        denies = [row for row in rows if row.effect is Effect.DENY]
        opened, opened_twice = _layers(table.boxes[row.id] for row in allows)
        closed, closed_twice = _layers(table.boxes[row.id] for row in denies)
        for row in rows:
            box, one = table.boxes[row.id], seen[row.id]
            if row.effect is Effect.ALLOW:
                one.effective |= bool(box & ~opened_twice & ~closed)
                one.opens |= bool(box & ~closed)
                for deny in denies:
                    if taken := (box & table.boxes[deny.id]).bit_count():
                        one.cut[deny.id] = one.cut.get(deny.id, 0) + taken
            else:
                one.effective |= bool(box & ~closed_twice & opened)
            peers = allows if row.effect is Effect.ALLOW else denies
            if not one.effective:
                _narrow(one, {p.id for p in peers if p is not row and not box & ~table.boxes[p.id]})
    return seen


def _layers(masks: Iterator[int]) -> tuple[int, int]:
    """What one mask at least has, and what two have."""
    once = twice = 0
    for mask in masks:
        twice |= once & mask
        once |= mask
    return once, twice


def _narrow(seen: _Seen, covers: set[str]) -> None:
    seen.covers = covers if seen.covers is None else seen.covers & covers


def _relation(relation: Relation) -> Mapping[str, _Seen]:
    seen = {row.id: _Seen() for row in relation.rows}
    keys = {row.id: set(itertools.product(*map(sorted, row.cells))) for row in relation.rows}
    for row in relation.rows:
        one = seen[row.id]
        for key in keys[row.id]:
            entry = relation.entries[key]
            if row.effect is Effect.ALLOW:
                one.opens |= not entry.denies
                one.effective |= entry.allows == (row.id,) and not entry.denies
                for deny in entry.denies:
                    one.cut[deny] = one.cut.get(deny, 0) + 1
            elif entry.denies == (row.id,):
                one.effective |= any(
                    found.allows and set(found.denies) <= {row.id}
                    for found in _beside(relation, key)
                )
        peers = [r for r in relation.rows if r.effect is row.effect and r is not row]
        one.covers = {peer.id for peer in peers if keys[row.id] <= keys[peer.id]}
    return seen


def _beside(relation: Relation, key: tuple[str, ...]) -> Iterator[Verdict]:
    """The entries of the tuples that one request may carry together with this one."""
    yield relation.entries.get(key, SILENCE)
    for position, axis in enumerate(relation.shape.axes):
        if axis in relation.shape.many:
            for other, entry in relation.entries.items():
                if _differ_at(key, other, position):
                    yield entry


def _differ_at(key: Sequence[str], other: Sequence[str], position: int) -> bool:
    return all(
        (one == two) is (place != position)
        for place, (one, two) in enumerate(zip(key, other, strict=True))
    )
