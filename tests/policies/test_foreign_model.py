"""Models that somebody brings: Casbin's own tests, compiled or refused aloud.

The sets and decisions were taken from the tests of casbin/casbin and casbin/pycasbin (the
data's README names the commits).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from policies.decision import Scope
from policies.emit import postgres, qdrant
from policies.errors import InvalidPolicy
from policies.foreign_model import compile_model, compile_units
from policies.review import forms
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS, Vocabulary

REFUSED = {
    "basic_model (no policy)": "no_rules",
    "basic_with_root_model (no policy)": "no_rules",
    "rbac_with_not_deny_model + rbac_with_deny_policy": "unsupported_effect",
    "keymatch_model + keymatch_policy": "unsupported_matcher",
    "keymatch2_model + keymatch2_policy": "unsupported_matcher",
    "ipmatch_model + ipmatch_policy": "unsupported_matcher",
    "glob_model + glob_policy": "unsupported_matcher",
    "globmatch_model + globmatch_policy": "unsupported_matcher",
    "priority_model + priority_policy": "unsupported_effect",
    "priority_model + priority_indeterminate_policy": "unsupported_effect",
    "priority_model_explicit + priority_policy_explicit": "bad_names",
    "subject_priority_model + subject_priority_policy": "unsupported_effect",
    "subject_priority_model_with_domain + subject_priority_policy_with_domain":
        "unsupported_effect",
    "rbac_model_in_multi_line + rbac_policy": "several_lines",
    "comment_model + basic_policy": "inline_comment",
    "keymatch_with_rbac_in_domain + keymatch_with_rbac_in_domain": "unsupported_matcher",
    "eval_operator_model + eval_operator_policy": "unsupported_matcher",
    "syntax_matcher_model (no policy)": "unsupported_matcher",
    "rbac_model + empty_policy": "no_rules",
    "rbac_model_matcher_using_in_op_bracket + rbac_policy": "unsupported_matcher",
}  # fmt: skip
"""Every set that is not compiled, and one of the reasons that is told."""

SETS, DECISIONS = 34, 227


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def words_of(one: dict, requests: list[list[str]]) -> list[list[str]]:  # type: ignore[type-arg]
    """Closed words per position: those that requests and rows use there, and a stranger's."""
    rows = [[w.strip() for w in line.split(",")] for line in one["policy"].splitlines() if line]
    every = sorted({word for row in rows for word in row[1:]})
    return [sorted({r[position] for r in requests} | {*every, "stranger"})
            for position in range(len(requests[0]))]  # fmt: skip


def units_of(names: list[str], words: list[list[str]]) -> tuple[Vocabulary, dict[str, str]]:
    """A vocabulary in which the request's names are the profile and the first facets."""
    axes = dict(zip(names, ("profile", *FACETS), strict=False))
    facets: dict[str, tuple[str, ...]] = dict.fromkeys(FACETS, ("x",))
    facets |= {axis: tuple(ws) for axis, ws in zip(axes.values(), words, strict=True)
               if axis != "profile"}  # fmt: skip
    vocabulary = Vocabulary(
        facets=facets, retired={facet: frozenset() for facet in FACETS}, orders={},
        compartments=(), audiences=("a",), profiles=dict.fromkeys(words[0], "a"), roles=(),
        tasks=(), tools=(), purposes=(), ttls=(), generations=(facets,),
    )  # fmt: skip
    return vocabulary, axes


def test_every_set_of_casbins_own_tests_agrees_in_every_form_or_is_refused(
    shared_data: Path, default: Snapshot
) -> None:
    """Table, grant, SQL lists, masks, filter and folded products give the asserted decision."""
    sets = lines(shared_data / "casbin/sets.jsonl")
    cases = lines(shared_data / "casbin/cases.jsonl")
    assert (len(sets), len(cases)) == (SETS, DECISIONS)
    agreed, refused = 0, 0
    for one in sets:
        mine = [case for case in cases if case["set"] == one["set"]]
        requests = [case["request"] for case in mine]
        names = [f"{n.strip()}" for n in str(one["model"]).split("r = ")[1].split("\n")[0]
                 .partition(";")[0].split(",")]  # fmt: skip
        words = words_of(one, requests)  # type: ignore[arg-type]
        vocabulary, axes = units_of(names, words)
        if one["name"] in REFUSED:
            with pytest.raises(InvalidPolicy, match=REFUSED[str(one["name"])]):
                compile_units(str(one["model"]), str(one["policy"]), vocabulary, axes)
            refused += len(mine)
            continue
        units = compile_units(str(one["model"]), str(one["policy"]), vocabulary, axes)
        table = dataclasses.replace(default.table, units=units)
        snapshot = dataclasses.replace(default, vocabulary=vocabulary, table=table)
        forms.check(snapshot)
        for case in mine:
            agreed += decided(snapshot, case["request"]) is case["expected"]  # type: ignore[arg-type]
    assert agreed + refused == DECISIONS
    assert agreed == 87


def decided(snapshot: Snapshot, request: list[str]) -> bool:
    """The verdict by what would be bound in SQL and put into the filter; they must be one."""
    profile, *values = request
    state = dict.fromkeys(FACETS, "x") | dict(zip(FACETS, values, strict=False))
    class_id = snapshot.vocabulary.class_id(state)
    scope = Scope(snapshot.grant([profile]), (), (), ())
    bound = postgres.predicate(scope, "u").params["scope_plain"]
    form = qdrant.filter(scope)
    filtered = form["must"][2]["match"]["any"] if form else []  # type: ignore[index]
    assert isinstance(bound, list)
    assert (class_id in bound) is (class_id in filtered)
    return class_id in bound


BASIC = """[request_definition]
r = sub, obj

[policy_definition]
p = sub, obj, eft

[role_definition]
g = _, _

[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))

[matchers]
m = g(r.sub, p.sub) && r.obj == p.obj
"""
RULES = "p, alice, one, allow\np, staff, two, allow\np, bob, two, deny\ng, bob, staff\n"
DOMAINS = {"sub": ["alice", "bob"], "obj": ["one", "two"]}


def test_roles_and_deny_rows_are_enumerated() -> None:
    table = compile_model(BASIC, RULES + "g, alice, staff\n", DOMAINS)
    assert table.allowed == {("alice", "one"), ("alice", "two")}
    assert not table.allows("bob", "two")
    assert not table.allows("eve", "one")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("r = sub, obj\n", "r = sub, obj\nr2 = sub\n", "multiple_definitions"),
        ("e = some", "e2 = some(where (p.eft == allow))\ne = some", "multiple_definitions"),
        ("m = g", "m = true\nm = g", "duplicate_key"),
        ("m = g", "m = g(r.sub, p.sub) \\\n# why\n && g", "several_lines"),
        ("[role_definition]", "[role_definitions]", "unknown_section"),
        ("p = sub, obj, eft", "p = sub, obj, effect", "bad_names"),
        ("p = sub, obj, eft", "p = eft, sub, obj", "bad_names"),
        ("r.obj == p.obj", "regexMatch(r.obj, p.obj)", "unsupported_matcher"),
        ("r.obj == p.obj", "eval(p.obj)", "unsupported_matcher"),
        ("r.obj == p.obj", "r.obj != p.obj", "unsupported_matcher"),
        ("r.obj == p.obj", "r.obj in p.obj", "unsupported_matcher"),
        ("r.obj == p.obj", "!(r.obj == p.obj)", "unsupported_matcher"),
        ("r.obj == p.obj", 'r.obj == "a&&b"', "unsupported_matcher"),
        ("r.obj == p.obj", "r.obj.__class__ == p.obj", "unsupported_matcher"),
        ("r.obj == p.obj", "r.object == p.obj", "unknown_name"),
        ("&& !some(where (p.eft == deny))", "", ""),
        ("some(where (p.eft == allow)) && ", "", "unsupported_effect"),
    ],
)  # fmt: skip
def test_a_model_is_compiled_or_refused_with_the_reason(old: str, new: str, code: str) -> None:
    """The traps of Casbin's model reader, each with what would have been misread."""
    assert old in BASIC
    model = BASIC.replace(old, new, 1)
    if not code:
        assert ("bob", "two") in compile_model(model, RULES, DOMAINS).allowed
        return
    with pytest.raises(InvalidPolicy) as caught:
        compile_model(model, RULES, DOMAINS)
    assert code in {fault.code for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("P, alice, two, deny", "unknown_row_type"),
        ("p, alice, two", "wrong_arity"),
        ("p, alice, two, Deny", "bad_effect"),
        ("p, alice, two, deny # why", "bad_effect"),
        ("p, \"alice\", two, deny", "bad_token"),
        ("p, al*, two, deny", "bad_token"),
        ("p, alcie, two, deny", "unknown_word"),
        ("p, alice, one, allow", "duplicate_rule"),
        ("g, staff, bob", "role_chain"),
        ("g, bob, staff, later", "wrong_arity"),
    ],
)  # fmt: skip
def test_a_row_is_read_or_refused(row: str, code: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        compile_model(BASIC, f"{RULES}{row}\n", DOMAINS)
    assert code in {fault.code for fault in caught.value.faults}


def test_more_requests_than_can_be_asked_are_refused() -> None:
    many = {"sub": [f"s{n}" for n in range(1_000)] + ["alice", "bob", "staff"],
            "obj": [f"o{n}" for n in range(500)] + ["one", "two"]}  # fmt: skip
    with pytest.raises(InvalidPolicy, match="too_many_states"):
        compile_model(BASIC, RULES, many)
