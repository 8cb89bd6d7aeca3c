"""Whom a verified token makes its bearer: audiences and agents' profiles, before and after.

Theory. Which row matches depends only on which rows' cells a claim's word stands in, so words
that no row of either revision tells apart are one block, and a token is a set of blocks. All
sets are tried when there are few blocks; then every difference is found, also those that a
row-by-row comparison misses: a caller whom two audiences made ambiguous gains one of them
when the other is taken away. With more blocks, sets of three at most are tried and any edit
counts as widening.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from policies.bindings import IssuerBinding
from policies.kinds import Kind
from policies.review.change import Change, Direction
from policies.review.fold import products
from policies.review.reading import Reading
from policies.rows import Row

BLOCKS_MAX: Final = 10
FEW: Final = 3
NOBODY: Final = "nobody"

Words = frozenset[str]


@dataclass(frozen=True, slots=True)
class _Word:
    """One word of a provider's claim, and the words of ours that it stands for on each side."""

    text: str
    before: Words
    after: Words


def compare(old: Reading, new: Reading) -> Iterator[Change]:
    """Every kind of token that is placed otherwise, with the smallest example of each."""
    was = {issuer.alias: issuer for issuer in old.snapshot.issuers}
    for issuer in new.snapshot.issuers:
        if issuer.alias in was:
            yield from _audiences(old, new, was[issuer.alias], issuer)
            yield from _agents(old, new, was[issuer.alias], issuer)


def _audiences(
    old: Reading, new: Reading, was: IssuerBinding, now: IssuerBinding
) -> Iterator[Change]:
    rows = [_rows_of(reading, Kind.AUDIENCE, now.alias) for reading in (old, new)]
    if was.claims == now.claims and _said(rows[0]) == _said(rows[1]) and _same_audiences(old, new):
        return
    found = _words(was, now, lambda ours, alias: f"{ours}={alias}")
    signature = _signature(rows, 1)

    def placed(reading: Reading, pairs: Words) -> str:
        claims: dict[str, set[str]] = {}
        for pair in pairs:
            name, _, value = pair.partition("=")
            claims.setdefault(name, set()).add(value)
        sets = {name: frozenset(values) for name, values in claims.items()}
        return reading.snapshot.place(now.alias, sets).value

    seen: dict[tuple[str, str], str] = {}
    sets, exact = _sets(found, signature)
    for chosen in sets:
        before = placed(old, _union(chosen, lambda word: word.before))
        after = placed(new, _union(chosen, lambda word: word.after))
        if before != after:
            seen.setdefault((before, after), _told(chosen))
    for (before, after), example in seen.items():
        text = f"a token with {example}: {before or NOBODY} -> {after or NOBODY}"
        yield Change(_direction(after), "audience", now.alias, text)
    if not exact:
        yield _doubtful("audience", now.alias)


def _agents(old: Reading, new: Reading, was: IssuerBinding, now: IssuerBinding) -> Iterator[Change]:
    rows = [list(reading.parsed.rows[Kind.AGENTS]) for reading in (old, new)]
    same = old.snapshot.vocabulary.profiles == new.snapshot.vocabulary.profiles
    roles = [issuer.claims.get("roles") for issuer in (was, now)]
    if roles == [None, None] or (
        roles[0] == roles[1] and same and _said(rows[0]) == _said(rows[1])
    ):
        return
    found = _words(was, now, lambda ours, alias: alias if ours == "roles" else "")
    sets, exact = _sets(found, _signature(rows, 0))
    tasks = _blocks(old, new, "task", _signature(rows, 1))
    tools = _blocks(old, new, "tool", _signature(rows, 2))
    seen: dict[tuple[str, str], dict[tuple[str, ...], str]] = {}
    for chosen, task, tool in itertools.product(sets, tasks, tools):
        sides = (
            old.snapshot.place_agent(_union(chosen, lambda w: w.before), task[0], tool[0]).value,
            new.snapshot.place_agent(_union(chosen, lambda w: w.after), task[0], tool[0]).value,
        )
        if sides[0] != sides[1]:
            for pair in itertools.product(task, tool):
                seen.setdefault(sides, {}).setdefault(pair, _told(chosen))
    for (before, after), pairs in seen.items():
        for task, tool in products(pairs.keys()):
            text = (
                f"an agent with {pairs[task[0], tool[0]]}, task {'|'.join(task)},"
                f" tool {'|'.join(tool)}: {before or NOBODY} -> {after or NOBODY}"
            )
            yield Change(_direction(after), "agents", now.alias, text)
    if not exact:
        yield _doubtful("agents", now.alias)


def _rows_of(reading: Reading, kind: Kind, issuer: str) -> list[Row]:
    return [row for row in reading.parsed.rows[kind] if issuer in row.cells[0]]


def _said(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    return [(row.cells, row.effect) for row in rows]


def _same_audiences(old: Reading, new: Reading) -> bool:
    return set(old.snapshot.vocabulary.audiences) == set(new.snapshot.vocabulary.audiences)


def _words(
    was: IssuerBinding, now: IssuerBinding, ours: Callable[[str, str], str]
) -> tuple[_Word, ...]:
    """Every word that either binding reads; ``ours`` makes our word of a claim and an alias."""
    sides: list[dict[tuple[str, str], set[str]]] = []
    for issuer in (was, now):
        side: dict[tuple[str, str], set[str]] = {}
        for name, source in issuer.claims.items():
            for theirs, alias in source.values.items():
                side.setdefault((source.claim, theirs), set()).add(ours(name, alias))
        sides.append(side)
    before, after = sides
    return tuple(
        _Word(
            "=".join(key),
            frozenset(before.get(key, ())) - {""},
            frozenset(after.get(key, ())) - {""},
        )
        for key in dict.fromkeys([*before, *after])
    )


Signature = Callable[[Words, int], tuple[bool, ...]]


def _signature(rows: Sequence[Sequence[Row]], position: int) -> Signature:
    """In which rows' cells one of some words stands, on one side."""

    def of(words: Words, side: int) -> tuple[bool, ...]:
        return tuple(bool(words & row.cells[position]) for row in rows[side])

    return of


def _sets(
    found: Sequence[_Word], signature: Signature
) -> tuple[tuple[tuple[_Word, ...], ...], bool]:
    """The sets of words to try, smallest first, and whether they stand for all."""
    blocks: dict[tuple[tuple[bool, ...], ...], _Word] = {}
    for word in found:
        key = (signature(word.before, 0), signature(word.after, 1))
        if any(map(any, key)):
            blocks.setdefault(key, word)
    one_of_each = tuple(blocks.values())
    exact = len(one_of_each) <= BLOCKS_MAX
    largest = len(one_of_each) if exact else FEW
    return (
        tuple(
            itertools.chain.from_iterable(
                itertools.combinations(one_of_each, size) for size in range(largest + 1)
            )
        ),
        exact,
    )


def _blocks(
    old: Reading, new: Reading, axis: str, signature: Signature
) -> tuple[tuple[str, ...], ...]:
    words: Sequence[str] = tuple(
        dict.fromkeys(
            word for reading in (old, new) for word in reading.parsed.domains[Kind.AGENTS][axis]
        )
    )
    groups: dict[tuple[tuple[bool, ...], ...], list[str]] = {}
    for word in words:
        single = frozenset({word})
        groups.setdefault((signature(single, 0), signature(single, 1)), []).append(word)
    return tuple(tuple(group) for group in groups.values())


def _union(chosen: tuple[_Word, ...], side: Callable[[_Word], Words]) -> Words:
    return frozenset(itertools.chain.from_iterable(map(side, chosen)))


def _told(chosen: tuple[_Word, ...]) -> str:
    return " and ".join(f"`{word.text}`" for word in chosen) or "no known word"


def _direction(after: str) -> Direction:
    return Direction.WIDENING if after else Direction.NARROWING


def _doubtful(area: str, name: str) -> Change:
    text = "too many claims to try every token; any edit counts as widening"
    return Change(Direction.WIDENING, area, name, text)
