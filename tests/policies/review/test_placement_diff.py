"""Whom a token makes its bearer, before and after, against every token tried by definition."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from policies.bindings import ClaimSource, CompartmentSource, IssuerBinding
from policies.decision import Effect
from policies.faults import Place
from policies.kinds import Kind
from policies.review import placement_diff
from policies.review.change import Change, Direction
from policies.rows import Row
from tests.policies.review.made import matches, reading
from tests.policies.test_table_properties import rule_sets, small

ISSUER = "idp:x"
AUDIENCES = ("one", "two", "three")
GROUPS = ("grp:a", "grp:b", "grp:c")
ROLES = ("role:a", "role:b", "role:c")
TASKS, TOOLS = ("t1", "t2"), ("u1", "u2")
PROFILES = {"one": "one", "two": "two", "ag:x": "three", "ag:y": "three"}
VOCABULARY = dataclasses.replace(
    small(), audiences=AUDIENCES, profiles=PROFILES, roles=ROLES, tasks=TASKS, tools=TOOLS
)
audience_rows = rule_sets([[ISSUER, "idp:y"], [f"groups={g}" for g in GROUPS], AUDIENCES])
agent_rows = rule_sets([ROLES, TASKS, TOOLS, ["ag:x", "ag:y"]])


def issuer(groups: Mapping[str, str], roles: Mapping[str, str]) -> IssuerBinding:
    nowhere = CompartmentSource("", ())
    claims = {"groups": ClaimSource("g", groups), "roles": ClaimSource("r", roles)}
    return IssuerBinding(ISSUER, "https://x/", "a", (), "", "", "", 30, claims, nowhere, nowhere)


def bindings(words: Sequence[str], aliases: Sequence[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(words), st.sampled_from(aliases))


raw = ("w1", "w2", "w3", "w4")
groups = bindings(raw, GROUPS)
roles = bindings(raw, ROLES)

Placed = Callable[[tuple[str, ...]], str]


def only(rows: Sequence[Row], requests: Mapping[str, Sequence[tuple[str, ...]]]) -> str:
    """The one candidate that some row allows and none denies, over all of a token's words."""
    found = []
    for candidate, asked in requests.items():
        effects = {row.effect for row in rows for one in asked if matches(row, one)}
        if effects == {Effect.ALLOW}:
            found.append(candidate)
    return found[0] if len(found) == 1 else ""


def differences(before: Placed, after: Placed) -> set[tuple[str, str]]:
    tokens = itertools.chain.from_iterable(
        itertools.combinations(raw, size) for size in range(len(raw) + 1)
    )
    return {(b, a) for token in tokens if (b := before(token)) != (a := after(token))}


def told(changes: Sequence[Change], area: str) -> set[tuple[str, str]]:
    pairs = set()
    for change in changes:
        if change.area == area:
            before, _, after = change.what.rpartition(": ")[2].partition(" -> ")
            assert (change.direction is Direction.NARROWING) is (after == placement_diff.NOBODY)
            pairs.add(tuple(side.replace(placement_diff.NOBODY, "") for side in (before, after)))
    return pairs  # type: ignore[return-value]


@given(audience_rows, audience_rows, groups, groups)
def test_every_token_that_is_placed_otherwise_is_told(
    before: list[Row], after: list[Row], words: dict[str, str], words_after: dict[str, str]
) -> None:
    """Also a token that gains an audience because a second one was taken away."""

    def placed(rows: list[Row], names: dict[str, str]) -> Placed:
        def of(token: tuple[str, ...]) -> str:
            pairs = [f"groups={names[word]}" for word in token if word in names]
            requests = {a: [(ISSUER, pair, a) for pair in pairs] for a in AUDIENCES}
            return only(rows, requests)

        return of

    found = placement_diff.compare(
        reading(VOCABULARY, {Kind.AUDIENCE: before}, (issuer(words, {}),)),
        reading(VOCABULARY, {Kind.AUDIENCE: after}, (issuer(words_after, {}),)),
    )
    wanted = differences(placed(before, words), placed(after, words_after))
    assert told([*found], "audience") == wanted


@given(agent_rows, agent_rows, roles, roles)
def test_every_agent_that_works_under_another_profile_is_told(
    before: list[Row], after: list[Row], words: dict[str, str], words_after: dict[str, str]
) -> None:
    def placed(rows: list[Row], names: dict[str, str], task: str, tool: str) -> Placed:
        def of(token: tuple[str, ...]) -> str:
            mine = {names[word] for word in token if word in names}
            profiles = {p: [(r, task, tool, p) for r in mine] for p in PROFILES}
            return only(rows, profiles)

        return of

    found = placement_diff.compare(
        reading(VOCABULARY, {Kind.AGENTS: before}, (issuer({}, words),)),
        reading(VOCABULARY, {Kind.AGENTS: after}, (issuer({}, words_after),)),
    )
    wanted = set()
    for task, tool in itertools.product(TASKS, TOOLS):
        wanted |= differences(
            placed(before, words, task, tool), placed(after, words_after, task, tool)
        )
    assert told([*found], "agents") == wanted


def test_taking_an_audience_away_opens_the_other_to_whom_it_made_ambiguous() -> None:
    """A row gone looks like narrowing, and for this caller it is not."""
    rows = [
        Row(f"A-{name}", (frozenset({ISSUER}), frozenset({f"groups=grp:{group}"}),
            frozenset({name})), Effect.ALLOW, Place("t"))
        for name, group in (("one", "a"), ("two", "b"))
    ]  # fmt: skip
    binding = (issuer({"w1": "grp:a", "w2": "grp:b"}, {}),)
    found = [
        *placement_diff.compare(
            reading(VOCABULARY, {Kind.AUDIENCE: rows}, binding),
            reading(VOCABULARY, {Kind.AUDIENCE: rows[:1]}, binding),
        )
    ]
    assert [(one.direction, one.what) for one in found] == [
        (Direction.NARROWING, "a token with `g=w2`: two -> nobody"),
        (Direction.WIDENING, "a token with `g=w1` and `g=w2`: nobody -> one"),
    ]


def test_more_claims_than_can_be_tried_count_as_widening() -> None:
    """Above ten words that the rows tell apart, not every token is tried."""
    many = [f"grp:g{number}" for number in range(12)]
    rows = [
        Row(f"A-{number}", (frozenset({ISSUER}), frozenset({f"groups={group}"}),
            frozenset({"one"})), Effect.ALLOW, Place("t"))
        for number, group in enumerate(many)
    ]  # fmt: skip
    binding = (issuer({group.upper(): group for group in many}, {}),)
    found = [
        *placement_diff.compare(
            reading(VOCABULARY, {Kind.AUDIENCE: rows}, binding),
            reading(VOCABULARY, {Kind.AUDIENCE: rows[1:]}, binding),
        )
    ]
    assert {one.direction for one in found} == {Direction.NARROWING, Direction.WIDENING}
