"""Lint findings, each proven by removing the rule and deciding everything again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decision import Effect
from policies.kinds import Kind
from policies.review import lint_rules
from policies.review.finding import Level
from policies.review.lint import lint, page
from policies.review.reading import Reading, read_unproven
from policies.review.writers import sarif, text
from policies.rows import Row
from tests.policies.review.made import allowed, matches, reading
from tests.policies.review.test_placement_diff import ROLES, TASKS, TOOLS, VOCABULARY
from tests.policies.test_table_properties import rule_sets, small

Edit = Callable[[str, str, str], None]
Decide = Callable[[Sequence[Row]], list[bool]]
DOMAINS = [["one", "two"], ["a", "b", "c"], ["a", "b"], ["a", "b"], ["a", "b"], ["a"], ["a", "b"],
           ["none", "granted"]]  # fmt: skip
AGENT_DOMAINS = [ROLES, TASKS, TOOLS, ["ag:x", "ag:y"]]


def units(rows: Sequence[Row]) -> list[bool]:
    return [allowed(rows, request) for request in itertools.product(*DOMAINS)]


def agents(rows: Sequence[Row]) -> list[bool]:
    """Every set of roles, not only single ones: a deny row may matter beside an allow only."""
    verdicts = []
    for size in range(1, len(ROLES) + 1):
        for group in itertools.combinations(ROLES, size):
            for rest in itertools.product(*AGENT_DOMAINS[1:]):
                asked = [(role, *rest) for role in group]
                effects = {row.effect for row in rows for one in asked if matches(row, one)}
                verdicts.append(effects == {Effect.ALLOW})
    return verdicts


CASES = st.one_of(
    rule_sets(DOMAINS).map(lambda rows: (Kind.UNITS, rows, units)),
    rule_sets(AGENT_DOMAINS).map(lambda rows: (Kind.AGENTS, rows, agents)),
)


def read(kind: Kind, rows: Sequence[Row]) -> Reading:
    return reading(small() if kind is Kind.UNITS else VOCABULARY, {kind: rows})


@given(CASES)
def test_a_rule_is_removable_exactly_when_removing_it_changes_no_decision(
    case: tuple[Kind, list[Row], Decide],
) -> None:
    kind, rows, decide = case
    whole = decide(rows)
    removable = lint_rules.removable(read(kind, rows))
    for row in rows:
        without = decide([other for other in rows if other is not row])
        assert (without == whole) is (row.id in removable), row


@given(CASES)
def test_every_finding_on_a_rule_says_what_is_so(
    case: tuple[Kind, list[Row], Decide],
) -> None:
    """Dead = opens nothing; shadowed = the row named matches all of it; overlap = both match."""
    kind, rows, _ = case
    found = [*lint_rules.findings(read(kind, rows))]
    domains = DOMAINS if kind is Kind.UNITS else AGENT_DOMAINS
    requests = [*itertools.product(*domains)]
    by_id = {row.id: row for row in rows}
    own = {row.id: [r for r in requests if matches(row, r)] for row in rows}
    for row in rows:
        mine = [one for one in found if one.reason.split("`")[1] == row.id]
        codes = {one.code for one in mine}
        opens = any(allowed(rows, request) for request in own[row.id])
        assert ("dead_rule" in codes) is (row.effect is Effect.ALLOW and not opens)
        for one in mine:
            if one.code == "shadowed_rule":
                cover = by_id[one.reason.split("`")[3]]
                assert cover.effect is row.effect
                assert all(matches(cover, request) for request in own[row.id])
            if one.code == "overlapping_rules":
                deny = by_id[one.reason.split("`")[3]]
                both = [request for request in own[row.id] if matches(deny, request)]
                assert deny.effect is Effect.DENY
                assert f"loses {len(both)} decisions" in one.reason


def test_the_default_policy_has_nothing_worse_than_notes(shipped: Reading) -> None:
    report = lint(shipped)
    assert {one.level for one in report.findings} == {Level.NOTE}
    assert report.at_least(Level.WARNING) == ()
    shown = text.write(page(report))
    assert "roles do not inherit" in shown
    assert "`R-X-AGENT` denies nothing" in shown
    assert "visibility `restricted`" in shown
    assert "rules/vocabulary.yaml:" not in shown  # a word of it has no line here: no line is told


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "level"),
    [
        ("rules/units.csv", "p, U-X-RAW, customer|partner|employee, all",
         "p, U-X-RAW, all, all", "dead_rule", Level.ERROR),
        ("rules/units.csv", "p, U-X-DRAFT, customer|partner, all",
         "p, U-X-CUS, customer, all, all, all, all, draft, all, all, deny\n"
         "p, U-X-DRAFT, customer|partner, all", "shadowed_rule", Level.WARNING),
        ("rules/agents.csv", "p, G-ENG-1, role:engineer,",
         "p, G-ENG-1, role:engineer|role:analyst,", "shadowed_rule", Level.WARNING),
        ("rules/agents.csv", "p, G-INC-1,", "# p, G-INC-1,", "unreachable_profile", Level.WARNING),
        ("rules/audience.csv", "p, A-PAR-1,", "# p, A-PAR-1,", "unreachable_profile",
         Level.WARNING),
        ("rules/vocabulary.yaml", "role:policy_ci]", "role:policy_ci, role:idle]",
         "unused_word", Level.NOTE),
        ("rules/issuers.yaml", "staff-all: grp:staff,", "staff-all: grp:staff, x: grp:unheard,",
         "unused_alias", Level.NOTE),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_found(
    file: str, old: str, new: str, code: str, level: Level, folder: Path, edit: Edit,
    shipped: Reading,
) -> None:  # fmt: skip
    edit(file, old, new)
    found = set(lint(read_unproven(folder)).findings) - set(lint(shipped).findings)
    assert (code, level) in {(one.code, one.level) for one in found}, found
    assert code in sarif.write([*found])
