"""Units under two policies, against the definition and against what a diff lists."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from policies.kinds import Kind
from policies.review import unit_diff
from policies.review.reading import Reading
from policies.rows import Row
from policies.shadow.attribution import attributed
from policies.shadow.disagreement import Way
from policies.shadow.units import UnitPair, unit_pair
from policies.vocabulary import CONSENTS, FACETS, Vocabulary
from tests.examples import examples
from tests.policies.review.made import reading
from tests.policies.review.test_unit_diff import edited, readable, rows, vocabularies
from tests.policies.test_table_properties import PROFILES, SMALL, small

PROFILE_LISTS = [("one",), ("two",), ("one", "two"), ("two", "one")]
TURNED = small([{facet: tuple(reversed(values)) for facet, values in SMALL.items()}])


def both(before: list[Row], after: list[Row], words: Vocabulary) -> tuple[Reading, Reading]:
    return reading(small(), {Kind.UNITS: before}), reading(words, {Kind.UNITS: after})


def ways(pair: UnitPair, words: Vocabulary) -> dict[tuple[int, bool], Way]:
    found = {
        (class_id, consent): pair.way(class_id, consent=consent)
        for class_id, _ in words.classes
        for consent in (False, True)
    }
    return {key: way for key, way in found.items() if way is not None}


def by_definition(
    before: list[Row], after: list[Row], words: Vocabulary, profiles: tuple[str, ...]
) -> dict[tuple[int, bool], Way]:
    """What somebody who must be allowed by all profiles gains and loses, state by state."""
    old, new = readable(small(), before), readable(words, after)
    found: dict[tuple[int, bool], Way] = {}
    for class_id, state in small().classes:
        for consent in CONSENTS:
            was, now = (
                all((profile, *state, consent) in side for profile in profiles)
                for side in (old, new)
            )
            if was is not now:
                found[class_id, consent == "granted"] = Way.CLOSES if was else Way.OPENS
    return found


@examples(60)
@given(st.data(), rows, st.one_of(vocabularies(), st.just(TURNED)), st.sampled_from(PROFILE_LISTS))
def test_two_policies_differ_on_a_unit_exactly_where_their_rules_do(
    data: st.DataObject, before: list[Row], words: Vocabulary, profiles: tuple[str, ...]
) -> None:
    """Also when the candidate's ids mean other states, and for intersections of profiles."""
    after = data.draw(edited(before))
    old, new = both(before, after, words)
    pair = unit_pair(old.snapshot, new.snapshot, profiles)
    assert ways(pair, small()) == by_definition(before, after, words, profiles)


@examples(60)
@given(st.data(), rows, vocabularies())
def test_what_a_diff_lists_is_what_the_look_up_counts(
    data: st.DataObject, before: list[Row], words: Vocabulary
) -> None:
    """Every closed state of the diff is counted, and nothing that the diff does not list."""
    old, new = both(before, data.draw(edited(before)), words)
    listed: dict[str, dict[tuple[int, bool], Way]] = {profile: {} for profile in PROFILES}
    for one in unit_diff.compare(old, new):
        for part in one.parts:
            for values in itertools.product(*(part.cells[facet] for facet in FACETS)):
                class_id = small().class_id(dict(zip(FACETS, values, strict=True)))
                if class_id < 0:  # a state that the live policy has no class for
                    continue
                for consent in part.consents:
                    way = Way.OPENS if part.gained else Way.CLOSES
                    listed[one.profile][class_id, consent == "granted"] = way
    for profile, wanted in listed.items():
        assert ways(unit_pair(old.snapshot, new.snapshot, (profile,)), small()) == wanted


@given(rows, st.sampled_from(PROFILE_LISTS))
def test_a_policy_agrees_with_itself_on_every_unit(
    found: list[Row], profiles: tuple[str, ...]
) -> None:
    old, new = both(found, [*reversed(found)], small())
    assert not ways(unit_pair(old.snapshot, new.snapshot, profiles), small())


@given(rows)
def test_a_profile_that_the_candidate_lacks_reads_nothing_there(found: list[Row]) -> None:
    old, new = both(found, found, small())
    pair = unit_pair(old.snapshot, new.snapshot, ("one", "gone"))
    assert not ways(pair, small())
    assert not ways(unit_pair(old.snapshot, new.snapshot, ()), small())


@examples(60)
@given(st.data(), rows, st.sampled_from(PROFILE_LISTS))
def test_a_disagreement_is_blamed_on_the_rules_of_both_sides(
    data: st.DataObject, before: list[Row], profiles: tuple[str, ...]
) -> None:
    """The allowing side names a rule; the two sides' rules are those of one profile's state."""
    old, new = both(before, data.draw(edited(before)), small())
    pair = unit_pair(old.snapshot, new.snapshot, profiles)
    for (class_id, consent), way in ways(pair, small()).items():
        bare = pair.about((class_id, consent))
        assert bare is not None
        assert bare.way is way
        told = attributed(old.snapshot, new.snapshot, bare)
        allowing = told.candidate_rules if way is Way.OPENS else told.live_rules
        assert allowing
        sides = [
            (side.table.units.rules(profile, class_id, CONSENTS[consent]))
            for profile in profiles
            for side in (old.snapshot, new.snapshot)
        ]
        known = {(v.denies or v.allows) for v in sides}
        assert {told.live_rules, told.candidate_rules} <= known
