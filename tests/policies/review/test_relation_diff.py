"""Routes and consents gained and lost, against every request tried by definition."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from policies.decision import Effect
from policies.kinds import Kind
from policies.review import relation_diff
from policies.review.change import Direction
from policies.review.fold import products
from policies.rows import Row
from tests.policies.review.made import allowed, reading
from tests.policies.test_table_properties import rule_sets, small

WORDS = {
    Kind.ROUTES: (("customer", "partner", "anonymous"), ("one", "two"), ("GET", "POST")),
    Kind.CONSENT: (("customer", "partner"), ("audit", "support"), ("role:x",), ("1h", "8h")),
    Kind.LABELS: (("customer", "partner"), ("role:x", "role:y"), ("other", "same")),
}
pairs = st.sampled_from([*WORDS]).flatmap(
    lambda kind: st.tuples(st.just(kind), rule_sets(WORDS[kind]), rule_sets(WORDS[kind]))
)


@given(pairs)
def test_every_request_that_is_decided_otherwise_is_told_once(
    case: tuple[Kind, list[Row], list[Row]],
) -> None:
    kind, before, after = case
    told: dict[Direction, list[tuple[str, ...]]] = {
        Direction.WIDENING: [], Direction.NARROWING: [],
    }  # fmt: skip
    for change in relation_diff.compare(
        reading(small(), {kind: before}), reading(small(), {kind: after})
    ):
        cells = [part.partition("=")[2].split("|") for part in change.name[2:].split(" ")]
        told[change.direction] += itertools.product(*cells)
    was, now = (
        {request for request in itertools.product(*WORDS[kind]) if allowed(rows, request)}
        for rows in (before, after)
    )
    for direction, wanted in (
        (Direction.WIDENING, now - was), (Direction.NARROWING, was - now),
    ):  # fmt: skip
        assert len(told[direction]) == len(set(told[direction]))
        assert set(told[direction]) == wanted


ROLES, ACTIONS = ("role:x", "role:y", "role:z"), ("live_ids", "read_shadow")
operators = rule_sets((ROLES, ACTIONS))


def without_one(rows: list[Row]) -> st.SearchStrategy[tuple[list[Row], list[Row]]]:
    """The edit that shows least: one row goes, and perhaps only two roles together notice."""
    edits = [(rows, [*rows[:at], *rows[at + 1 :]]) for at in range(len(rows))]
    return st.sampled_from([*edits, *((after, before) for before, after in edits), (rows, rows)])


@given(st.one_of(st.tuples(operators, operators), operators.flatmap(without_one)))
def test_whatever_any_set_of_roles_gains_or_loses_is_told(
    edit: tuple[list[Row], list[Row]],
) -> None:
    """Every set of roles is tried by definition: one row matches it, and no deny row does."""
    before, after = edit
    told = {
        change.direction
        for change in relation_diff.compare(
            reading(small(), {Kind.ADMIN: before}), reading(small(), {Kind.ADMIN: after})
        )
    }
    sets = [frozenset(c) for size in (1, 2, 3) for c in itertools.combinations(ROLES, size)]
    was, now = (
        {
            (roles, action)
            for roles in sets
            for action in ACTIONS
            if {row.effect for row in rows if roles & row.cells[0] and action in row.cells[1]}
            == {Effect.ALLOW}
        }
        for rows in (before, after)
    )
    assert (Direction.WIDENING in told) is bool(now - was)
    assert (Direction.NARROWING in told) is bool(was - now)


@given(st.sets(st.tuples(*(st.sampled_from("abc") for _ in range(3)))))
def test_products_cover_exactly_what_was_folded(tuples: set[tuple[str, ...]]) -> None:
    unfolded = [one for product in products(tuples) for one in itertools.product(*product)]
    assert len(unfolded) == len(set(unfolded))
    assert set(unfolded) == tuples
