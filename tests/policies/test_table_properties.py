"""Laws of the compiler, tried on random rules against Casbin, every state asked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import congruence
from policies.decision import Effect
from policies.errors import IncongruentPolicy
from policies.faults import Place
from policies.kinds import SHAPES, Kind
from policies.oracle import Oracle
from policies.quotient import Quotient
from policies.rows import Row
from policies.table import FacetSets, relation, unit_table
from policies.vocabulary import CONSENTS, FACETS, Vocabulary
from tests.examples import examples

SMALL = {
    "visibility": ("a", "b", "c"),
    "readiness": ("a", "b"),
    "publication_state": ("a", "b"),
    "risk_class": ("a", "b"),
    "authority": ("a",),
    "kind": ("a", "b"),
}
PROFILES = {"one": "one", "two": "two"}
NONE_RETIRED: Mapping[str, frozenset[str]] = {facet: frozenset() for facet in FACETS}


def small(
    generations: Sequence[dict[str, tuple[str, ...]]] = (SMALL,),
    retired: Mapping[str, frozenset[str]] = NONE_RETIRED,
) -> Vocabulary:
    """A vocabulary of 48 states, small enough to ask Casbin about each."""
    facets = generations[-1]
    return Vocabulary(
        facets=facets,
        retired=retired,
        orders={},
        compartments=(),
        audiences=("one", "two"),
        profiles=PROFILES,
        roles=(),
        tasks=(),
        tools=(),
        purposes=(),
        ttls=(),
        generations=tuple(generations),
    )


def cell(words: Sequence[str]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(words), min_size=1)


def rule_sets(domains: Sequence[Sequence[str]]) -> st.SearchStrategy[list[Row]]:
    """Up to eight rows over the columns, ids unique."""
    content = st.tuples(st.tuples(*map(cell, domains)), st.sampled_from(list(Effect)))
    return st.lists(content, min_size=1, max_size=8, unique=True).map(
        lambda found: [
            Row(f"R-{number}", cells, effect, Place("t"))
            for number, (cells, effect) in enumerate(found)
        ]
    )


unit_rows = rule_sets([list(PROFILES), *SMALL.values(), CONSENTS])


@examples(25)
@given(unit_rows)
def test_the_unit_table_equals_casbin_on_every_state(rows: list[Row]) -> None:
    vocabulary = small()
    sets = FacetSets(vocabulary)
    table = unit_table(vocabulary, rows, sets)
    oracle = Oracle(SHAPES[Kind.UNITS], rows)
    for profile, consent in itertools.product(PROFILES, CONSENTS):
        readable = set(table.classes(profile, consent))
        for class_id, values in vocabulary.classes:
            allowed = oracle.allows(profile, *values, consent)
            assert allowed is (class_id in readable)
            assert allowed is table.rules(profile, class_id, consent).allowed
    congruence.check_units(vocabulary, table, sets)
    told: list[int] = []
    states = vocabulary.class_count * len(PROFILES) * len(CONSENTS)
    assert congruence.check_units_exhaustively(vocabulary, table, told.append) == states
    assert told == [states // 4, states // 2, states * 3 // 4, states]


@examples(25)
@given(unit_rows, st.randoms(use_true_random=False))
def test_the_quotient_finds_what_the_full_enumeration_finds(
    rows: list[Row], random: Random
) -> None:
    """One flipped bit anywhere is noticed by the quotient, not only by asking every state."""
    vocabulary = small()
    sets = FacetSets(vocabulary)
    table = unit_table(vocabulary, rows, sets)
    assert isinstance(table.readable, dict)
    key = random.choice(sorted(table.readable))
    table.readable[key] ^= 1 << random.randrange(vocabulary.class_count)
    with pytest.raises(IncongruentPolicy):
        congruence.check_units(vocabulary, table, sets)
    with pytest.raises(IncongruentPolicy):
        congruence.check_units_exhaustively(vocabulary, table, lambda _: None)


def test_a_box_with_an_unknown_word_alone_or_without_a_facet_holds_nothing() -> None:
    """Not even the first class, which has the first word of everything."""
    sets = FacetSets(small())
    cells = [frozenset(words) for words in SMALL.values()]
    assert sets.box(cells) == (1 << small().class_count) - 1
    for position in range(len(cells)):
        for nothing in (frozenset({"unknown"}), frozenset[str]()):
            assert sets.box([*cells[:position], nothing, *cells[position + 1 :]]) == 0
    with pytest.raises(ValueError, match="shorter"):
        sets.box(cells[:-1])


@pytest.mark.parametrize(("facet", "word"), [("kind", "b"), ("visibility", "a")])
def test_the_proofs_look_past_retired_classes_and_into_them(facet: str, word: str) -> None:
    """Every second class, or the first third: live ones behind are asked, no other is read."""
    vocabulary = small(retired={**NONE_RETIRED, facet: frozenset({word})})
    everything = tuple(map(frozenset, (PROFILES, *SMALL.values(), CONSENTS)))
    sets = FacetSets(vocabulary)
    table = unit_table(vocabulary, [Row("R-1", everything, Effect.ALLOW, Place("t"))], sets)
    live = {i for i, _ in vocabulary.classes if not vocabulary.is_retired(i)}
    assert set(table.classes("two", "granted")) == live
    assert 0 < len(live) < vocabulary.class_count
    asked = congruence.check_units_exhaustively(vocabulary, table, lambda _: None)
    assert asked == len(live) * len(PROFILES) * len(CONSENTS)
    assert isinstance(table.readable, dict)
    for class_id in range(vocabulary.class_count):
        table.readable["one", "none"] ^= 1 << class_id
        with pytest.raises(IncongruentPolicy):
            congruence.check_units(vocabulary, table, sets)
        with pytest.raises(IncongruentPolicy):
            congruence.check_units_exhaustively(vocabulary, table, lambda _: None)
        table.readable["one", "none"] ^= 1 << class_id


AGENT_DOMAINS = [["r1", "r2", "r3"], ["t1", "t2"], ["u1"], ["p1", "p2"]]


@examples(25)
@given(rule_sets(AGENT_DOMAINS))
def test_a_small_kind_equals_casbin_for_every_set_of_roles(rows: list[Row]) -> None:
    """Not only for one or two roles, which is what the load-time check asks about."""
    compiled = relation(SHAPES[Kind.AGENTS], rows)
    oracle = Oracle(SHAPES[Kind.AGENTS], rows)
    roles = AGENT_DOMAINS[0]
    groups = [c for size in (1, 2, 3) for c in itertools.combinations(roles, size)]
    for group, others in itertools.product(groups, itertools.product(*AGENT_DOMAINS[1:])):
        request = (frozenset(group), *(frozenset({word}) for word in others))
        assert compiled.verdict(*request).allowed is oracle.allows(*request)
    domains = dict(zip(("role", "task", "tool", "profile"), AGENT_DOMAINS, strict=True))
    congruence.check_relation(compiled, domains)


def test_a_forgotten_deny_is_noticed_although_only_two_words_show_it() -> None:
    """Alone the role is denied either way; beside an allowed one the deny row decides."""
    others = tuple(map(frozenset, (["t1"], ["u1"], ["p1"])))
    rows = [
        Row("R-1", (frozenset({"r1"}), *others), Effect.ALLOW, Place("t")),
        Row("R-2", (frozenset({"r2"}), *others), Effect.DENY, Place("t")),
    ]
    domains = {"role": ["r1", "r2"], "task": ["t1"], "tool": ["u1"], "profile": ["p1"]}
    good = relation(SHAPES[Kind.AGENTS], rows)
    cells, combinations = 7, 3
    assert congruence.check_relation(good, domains) == cells + combinations
    allowed = {key: found for key, found in good.entries.items() if found.allows}
    with pytest.raises(IncongruentPolicy, match=r"r1\|r2, t1, u1, p1"):
        congruence.check_relation(replace(good, entries=allowed), domains)


@examples(25)
@given(unit_rows)
def test_appending_a_value_moves_no_id_and_changes_no_verdict(rows: list[Row]) -> None:
    """Rules stay as they were; the new value is in no cell, so nobody may read it."""
    grown = {**SMALL, "kind": ("a", "b", "c")}
    before, after = small(), small([SMALL, grown])
    old = unit_table(before, rows, FacetSets(before))
    new = unit_table(after, rows, FacetSets(after))
    assert after.classes[: before.class_count] == before.classes
    assert after.class_count == before.class_count + 24
    assert new.readable == old.readable


@examples(25)
@given(unit_rows)
def test_regions_part_all_requests_and_the_same_rows_match_within_each(rows: list[Row]) -> None:
    """The law that lets one question stand for many: see ``policies.quotient``."""
    domains = tuple(map(tuple, (PROFILES, *SMALL.values(), CONSENTS)))
    quotient = Quotient(domains, lambda held: [row.id for row in held])
    seen: set[tuple[str, ...]] = set()
    for region in quotient.regions(rows):
        matching = [row.id for row in region.rows]
        assert set(matching) <= set(region.judge)
        for request in itertools.product(*region.words):
            assert request not in seen
            seen.add(request)
            met = [
                row.id
                for row in rows
                if all(word in cell for word, cell in zip(request, row.cells, strict=True))
            ]
            assert met == matching
    assert len(seen) == len(PROFILES) * 48 * len(CONSENTS)
