"""What a diff says of units, against a comparison state by state that shares no code with it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.decision import Effect
from policies.faults import Place
from policies.kinds import Kind
from policies.review import unit_diff
from policies.review.reading import Reading
from policies.review.unit_diff import StateChange
from policies.rows import Row
from policies.vocabulary import CONSENTS, Vocabulary
from tests.policies.review.made import allowed, matches, reading
from tests.policies.test_table_properties import PROFILES, SMALL, cell, rule_sets, small

Pair = tuple[str, ...]
GROWN = {**SMALL, "kind": ("a", "b", "c")}
DOMAINS = [list(PROFILES), *SMALL.values(), CONSENTS]


def lawful(found: list[Row]) -> list[Row]:
    """The rows with consents that only open, as the loader demands."""
    wanted = {Effect.ALLOW: "granted", Effect.DENY: "none"}
    return [
        dataclasses.replace(row, cells=(*row.cells[:-1], row.cells[-1] | {wanted[row.effect]}))
        for row in found
    ]


rows = rule_sets(DOMAINS).map(lawful)


def vocabularies() -> st.SearchStrategy[Vocabulary]:
    """As it is, with a value appended, or with one retired."""
    retired = dataclasses.replace(
        small(), retired={**small().retired, "risk_class": frozenset({"b"})}
    )
    return st.sampled_from([small(), small([SMALL, GROWN]), retired])


@st.composite
def edited(draw: st.DrawFn, found: list[Row]) -> list[Row]:
    """The rows after one to three edits: a cell, an effect, a row gone, a row come."""
    result = list(found)
    for number in range(draw(st.integers(1, 3))):
        what = draw(st.sampled_from(["cell", "effect", "gone", "come"]))
        position = draw(st.integers(0, max(len(result) - 1, 0)))
        if what == "come" or not result:
            cells = tuple(draw(cell(domain)) for domain in DOMAINS)
            place = result[0].place if result else found[0].place
            result.append(Row(f"N-{number}", cells, draw(st.sampled_from(list(Effect))), place))
        elif what == "gone":
            result.pop(position)
        elif what == "effect":
            other = Effect.DENY if result[position].effect is Effect.ALLOW else Effect.ALLOW
            result[position] = dataclasses.replace(result[position], effect=other)
        else:
            axis = draw(st.integers(0, len(DOMAINS) - 1))
            edited = list(result[position].cells)
            edited[axis] = draw(cell(DOMAINS[axis]))
            result[position] = dataclasses.replace(result[position], cells=tuple(edited))
    return lawful(result)


def readable(vocabulary: Vocabulary, found: Sequence[Row]) -> set[Pair]:
    """Every (profile, state, consent) that is read, by the definition."""
    live = [vocabulary.live(facet) for facet in vocabulary.facets]
    return {
        request
        for request in itertools.product(PROFILES, *live, CONSENTS)
        if allowed(found, request)
    }


def covered(profile: str, parts: Sequence[StateChange], *, gained: bool) -> list[Pair]:
    return [
        (profile, *state, consent)
        for part in parts
        if part.gained is gained
        for state in itertools.product(*part.cells.values())
        for consent in part.consents
    ]


def compared(
    before: Sequence[Row], after: Sequence[Row], words: Vocabulary | None = None
) -> tuple[Reading, Reading]:
    return (
        reading(small(), {Kind.UNITS: before}),
        reading(words or small(), {Kind.UNITS: after}),
    )


@settings(max_examples=60)
@given(st.data(), rows, vocabularies())
def test_a_diff_is_the_comparison_state_by_state(
    data: st.DataObject, before: list[Row], words: Vocabulary
) -> None:
    """Gained and lost are covered exactly once each, whatever was edited."""
    after = data.draw(edited(before))
    old, new = compared(before, after, words)
    was, now = readable(small(), before), readable(words, after)
    found = unit_diff.compare(old, new)
    for gained, wanted in ((True, now - was), (False, was - now)):
        told = [p for one in found for p in covered(one.profile, one.parts, gained=gained)]
        assert len(told) == len(set(told))
        assert set(told) == wanted
    assert sum(one.gained for one in found) == len(now - was)
    assert sum(one.lost for one in found) == len(was - now)


@settings(max_examples=60)
@given(st.data(), rows)
def test_every_change_of_a_state_has_rules_to_blame(data: st.DataObject, before: list[Row]) -> None:
    """A cause either allows what it did not, or denied what it does not any more; or inversely."""
    after = data.draw(edited(before))
    was, now = {row.id: row for row in before}, {row.id: row for row in after}

    def reaches(side: dict[str, Row], rule: str, effect: Effect, pair: Pair) -> bool:
        row = side.get(rule)
        return row is not None and row.effect is effect and matches(row, pair)

    for one in unit_diff.compare(*compared(before, after)):
        for part in one.parts:
            assert part.causes
            first, second = (was, now) if part.gained else (now, was)
            for state in itertools.product(*part.cells.values()):
                explained = set()
                for cause, consent in itertools.product(part.causes, part.consents):
                    pair = (one.profile, *state, consent)
                    opened = reaches(second, cause.rule, Effect.ALLOW, pair)
                    opened &= not reaches(first, cause.rule, Effect.ALLOW, pair)
                    unshut = reaches(first, cause.rule, Effect.DENY, pair)
                    unshut &= not reaches(second, cause.rule, Effect.DENY, pair)
                    explained |= {cause, consent} if opened or unshut else set()
                assert explained == {*part.causes, *part.consents}
            verdicts = part.example.rpartition(": ")[2].split(" -> ")
            effects = [verdict.partition(" ")[0] for verdict in verdicts]
            assert effects == (["DENY", "ALLOW"] if part.gained else ["ALLOW", "DENY"])


@given(rows)
def test_a_policy_does_not_differ_from_itself(found: list[Row]) -> None:
    assert unit_diff.compare(*compared(found, list(reversed(found)))) == ()


def test_states_are_compared_by_values_when_the_lock_was_rewritten() -> None:
    """Ids that moved would make every comparison by bit a lie."""
    turned = {facet: tuple(reversed(values)) for facet, values in SMALL.items()}
    row = Row("R-1", tuple(map(frozenset, DOMAINS)), Effect.ALLOW, Place("t", 1, 1))
    few = dataclasses.replace(row, cells=(*row.cells[:1], frozenset({"a"}), *row.cells[2:]))
    old, new = compared([few], [few], small([turned]))
    assert unit_diff.compare(old, new) == ()
    old, new = compared([few], [row], small([turned]))
    assert {one.gained for one in unit_diff.compare(old, new)} == {64}
