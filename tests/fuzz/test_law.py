"""The fuzzer's law over all of its seeds and some edits, and that it would notice.

The search itself is ``make fuzz``: coverage-guided, in an environment of its own.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.review.change import Direction
from policies.review.diff import reach
from tests.examples import examples
from tests.fuzz.edits import decoded, edited, encoded, words_of
from tests.fuzz.law import Law, LawBroken
from tests.fuzz.seeds import seeds


@pytest.fixture(scope="module")
def law() -> Law:
    return Law()


def test_the_law_holds_of_every_seed(law: Law) -> None:
    """All shipped files, each with a byte-order mark, each empty, and every measured trap."""
    refused = [bool(law.check({**law.contents, **seed}).faults) for seed in seeds(law.contents)]
    assert refused.count(False) >= len(law.contents)
    assert refused.count(True) > 100


@examples(25)
@given(st.randoms(use_true_random=False))
def test_the_law_holds_after_edits_by_hand(law: Law, random: Random) -> None:
    """Words, cells and lines exchanged: most of these folders are well-formed."""
    names = sorted(law.contents)
    data = encoded(names, {name: law.contents[name] for name in [random.choice(names)]})
    for _ in range(random.randrange(1, 4)):
        data = edited(data, words_of(law.contents), random)
    law.check({**law.contents, **decoded(names, data)})


def test_an_opening_that_the_diff_does_not_tell_is_noticed(law: Law) -> None:
    """The law is shown to bite: with a diff that finds nothing, a wider rule breaks it."""
    name, old = "rules/units.csv", b"partner, public|partner,"
    spoilt = {**law.contents, name: law.contents[name].replace(old, b"partner, public|employee,")}
    found = law.check(spoilt)
    assert (found.faults, found.direction) == ((), Direction.WIDENING)
    assert {able[:2] for able in found.grown} == {("reads", "partner")}
    blind = Law(difference=lambda old, _: reach(old, old))
    with pytest.raises(LawBroken, match="neutral, yet somebody reads partner"):
        blind.check(spoilt)


def test_several_files_are_one_input() -> None:
    names = ["a", "b", "c"]
    written = {"a": b"1\n", "c": b"\x00\xfe"}
    assert decoded(names, encoded(names, written)) == written
    assert decoded(names, b"") == {}
