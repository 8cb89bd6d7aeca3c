"""Explanations, held against the rows themselves for every state of a sample."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decision import Effect
from policies.kinds import Kind
from policies.review.explain import UnknownState, explain, page
from policies.review.reading import Reading
from policies.review.writers import text
from policies.vocabulary import CONSENTS, FACETS
from tests.policies.review.made import allowed, matches


@given(data=st.data())
def test_an_explanation_names_what_decides_and_where_the_nearest_rules_fail(
    data: st.DataObject, shipped: Reading
) -> None:
    vocabulary = shipped.snapshot.vocabulary
    profile = data.draw(st.sampled_from([*vocabulary.profiles]))
    state = {f: data.draw(st.sampled_from(vocabulary.live(f))) for f in FACETS}
    consent = data.draw(st.sampled_from(CONSENTS))
    rows = shipped.parsed.rows[Kind.UNITS]
    request = (profile, *state.values(), consent)
    report = explain(shipped, profile, state, consent)
    matching = [row for row in rows if matches(row, request)]
    denies = [row.id for row in matching if row.effect is Effect.DENY]
    allows = [row.id for row in matching if row.effect is Effect.ALLOW]
    assert report.allowed is allowed(rows, request)
    assert [rule for rule, _ in report.deciding] == (denies or allows)
    assert list(report.overruled) == (allows if denies else [])
    for near in report.nearest:
        row = next(row for row in rows if row.id == near.rule)
        asked = dict(zip(("profile", *FACETS, "consent"), request, strict=True))
        asked |= {miss.axis: miss.accepted[0] for miss in near.misses}
        assert row.effect is Effect.ALLOW
        assert near.misses
        assert matches(row, tuple(asked.values()))
    fewest = [len(near.misses) for near in report.nearest if near.misses[0].axis != "profile"]
    assert fewest == sorted(fewest)


def test_a_denial_of_a_state_that_nobody_wrote_of_says_so(shipped: Reading) -> None:
    words = ("internal", "draft", "unpublished", "low", "enacted", "faq")
    report = explain(shipped, "agent:auditor", dict(zip(FACETS, words, strict=True)), "none")
    shown = text.write(page(report))
    assert shown.startswith("DENY (no rule) agent:auditor\n")
    assert "no rule speaks of it" in shown
    assert "U-AGU-1" in shown
    assert "readiness is draft, the rule wants approved|published|superseded" in shown


@pytest.mark.parametrize(("position", "word"), [*itertools.product(range(6), ["", "Public", "*"])])
def test_a_word_that_no_unit_can_have_is_refused(
    position: int, word: str, shipped: Reading
) -> None:
    """A misspelt question must not be answered with a denial that looks like the policy's."""
    words = ["public", "published", "published", "low", "enacted", "faq"]
    words[position] = word
    with pytest.raises(UnknownState):
        explain(shipped, "customer", dict(zip(FACETS, words, strict=True)), "none")
