"""Explicit references, health verdicts and the choice among candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.thresholds import DEFAULTS, Thresholds
from retrieval.stores.rows import Facets, FeedbackRow, ThreadRow
from retrieval.threads.evidence import chance
from retrieval.threads.health import Status, Verdict, combine, with_feedback
from retrieval.threads.rank import (
    AUTHORITY,
    CHAIN,
    RECENCY,
    Standing,
    chain_coverage,
    chosen,
)
from retrieval.threads.resolve import Candidate, references_in

UUID_TEXT = "6e433b91-601b-52bf-8741-8cc35f781b3e"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("compare thread:refunds, (PEP-0008) and law/refund-act!", 3),
        (f"what about “{UUID_TEXT}”?", 1),
        ("refunds and returns", 0),
        ("thread:a thread:a thread:a", 1),
        (" ".join(f"t:{number}" for number in range(50)), 6),
        ("x" * 400 + ":1", 0),
    ],
)
def test_references_are_tokens_that_look_like_addresses(query: str, found: int) -> None:
    """A plain word stays a keyword; how many are tried is bounded."""
    assert len(references_in(query, references_max=6)) == found


def test_punctuation_around_a_reference_is_not_part_of_it() -> None:
    """As people write them in sentences."""
    query = "see `thread:refunds`, (PEP-0008). And law#3:"
    assert references_in(query, references_max=9) == ("thread:refunds", "PEP-0008", "law#3")


AT = "2026-05-15T09:00:00+00:00"


@pytest.mark.parametrize(
    ("parts", "status", "checked"),
    [
        ([], "unknown", False),
        ([{}, {}], "unknown", False),
        ([{"status": "healthy", "checked_at": AT}, {}], "healthy", True),
        ([{"status": "healthy"}, {"status": "stale"}], "healthy", False),
        ([{"status": "stale"}, {"status": "stale"}], "stale", False),
        ([{"status": "healthy", "checked_at": AT}, {"status": "fine"}], "unknown", True),
        ([{"status": None}], "unknown", False),
        ([{"status": ["healthy"]}], "unknown", False),
        ([{"status": "healthy", "checked_at": "2026-05-15T09:00:00"}], "healthy", False),
        ([{"status": "healthy", "checked_at": 7}], "healthy", False),
    ],
)
def test_the_worst_permitted_part_decides(
    parts: list[Mapping[str, Any]], status: str, checked: bool
) -> None:
    """What cannot be read is not called sound; a time without a zone is no time."""
    verdict = combine(parts)
    assert (verdict.status.value, verdict.checked_at is not None) == (status, checked)


def _standing(
    number: int,
    utility: float,
    *,
    status: Status = Status.UNKNOWN,
    day: int = 1,
    authority: str = "enacted",
    chain: float = 0.5,
    empty: bool = False,
) -> Standing:
    facets = Facets("public", "published", "published", "standard", "enacted", "thread")
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
    thread = ThreadRow(
        UUID(int=number), f"t:{number}", "", (), "", "", 1, "*", "*", facets, "active"
    )
    candidate = Candidate(thread, chance(utility), (), utility)
    return Standing(candidate, Verdict(status, None), moment, authority, chain, empty)


def _numbers(standings: list[Standing]) -> list[int]:
    return [candidate.thread.id.int for candidate in chosen(standings, DEFAULTS)]


@pytest.mark.parametrize(
    ("standings", "order"),
    [
        ([_standing(1, 4.0), _standing(2, 2.0)], [1]),
        ([_standing(1, 3.0), _standing(2, 4.0)], [2, 1]),
        ([_standing(n, 4.0) for n in (5, 4, 3, 2, 1)], [1, 2, 3]),
        ([_standing(1, 4.0, status=Status.STALE), _standing(2, 3.6)], [2]),
        ([_standing(1, 4.0, status=Status.HEALTHY), _standing(2, 4.0)], [1, 2]),
        ([_standing(1, 4.0, empty=True), _standing(2, 1.0)], [2]),
        ([_standing(1, 4.0, empty=True)], []),
        ([_standing(1, 4.0, day=1), _standing(2, 4.0, day=200)], [2, 1]),
        ([_standing(1, 4.0, authority="runtime"), _standing(2, 4.0)], [2, 1]),
        ([_standing(1, 4.0, authority="runtime"), _standing(2, 4.0, authority="draft")], [2, 1]),
        ([_standing(1, 4.0, chain=0.25), _standing(2, 4.0, chain=0.75)], [2, 1]),
        ([], []),
    ],
)
def test_one_thread_stands_alone_or_several_are_offered(
    standings: list[Standing], order: list[int]
) -> None:
    """Mandated by seed 4.2 and 4.3: relevance, recency, authority, health, coverage."""
    assert _numbers(standings) == order


candidates = st.lists(
    st.builds(
        _standing,
        st.integers(1, 99),
        st.floats(-0.4, 6).map(lambda value: round(value, 6)),
        status=st.sampled_from(Status),
        day=st.integers(0, 3),
        authority=st.sampled_from(("enacted", "draft", "runtime", "unheard_of")),
        chain=st.sampled_from((0.0, 0.5, 1.0)),
        empty=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda one: one.candidate.thread.id,
)


@given(candidates, st.randoms())
def test_the_choice_does_not_depend_on_the_order_of_candidates(
    standings: list[Standing], rng: Any
) -> None:
    """A total order, so that equal requests are equal bytes."""
    shuffled = standings.copy()
    rng.shuffle(shuffled)
    assert _numbers(shuffled) == _numbers(standings)


@given(candidates)
def test_what_is_not_there_to_be_read_never_changes_the_choice(standings: list[Standing]) -> None:
    """An empty thread is neither offered nor a measure for the others."""
    assert _numbers(standings) == _numbers([one for one in standings if not one.empty])


@given(candidates)
def test_other_virtues_never_outweigh_a_clear_difference_in_relevance(
    standings: list[Standing],
) -> None:
    """Recency, authority and chain together turn odds by less than a factor of 2.5."""
    found = _numbers([replace(one, verdict=Verdict(Status.HEALTHY, None)) for one in standings])
    utility = {one.candidate.thread.id.int: one.candidate.utility for one in standings}
    for first, second in pairwise(found):
        assert utility[first] > utility[second] - (RECENCY + AUTHORITY + CHAIN) - 1e-6


@pytest.mark.parametrize(
    ("present", "expected", "share"),
    [
        ({"law"}, set(), 1 / 6),
        ({"law", "other"}, {"other"}, 1 / 6),
        ({"law", "design"}, {"law", "test"}, 1 / 2),
        ({"law", "test"}, {"law", "test"}, 1.0),
        (set(), {"law"}, 0.0),
    ],
)
def test_a_chain_is_measured_by_what_is_expected_of_it(
    present: set[str], expected: set[str], share: float
) -> None:
    """Chosen by us: a thread that expects nothing is measured by the seed's whole chain."""
    assert chain_coverage(present, expected) == share


def test_a_thread_without_anything_readable_is_too_narrow_and_weak() -> None:
    """For the fallback's trigger it counts as weak, whatever its verdict or the policy says."""
    none_weak = Thresholds(weak=())
    empty = _standing(1, 4.0, status=Status.HEALTHY, empty=True)
    assert (empty.status, empty.weak(none_weak)) == ("too_narrow", True)
    sound = _standing(1, 4.0, status=Status.STALE)
    assert (sound.status, sound.weak(none_weak), sound.weak(DEFAULTS)) == ("stale", False, True)


@pytest.mark.parametrize(
    ("checked", "said", "status"),
    [
        (Status.UNKNOWN, "noisy_retrieval", "noisy_retrieval"),
        (Status.UNKNOWN, "healthy", "healthy"),
        (Status.HEALTHY, "noisy_retrieval", "noisy_retrieval"),
        (Status.STALE, "healthy", "stale"),
        (Status.STALE, "noisy_retrieval", "stale"),
        (Status.HEALTHY, None, "healthy"),
    ],
)
def test_readers_may_worsen_a_verdict_and_never_mend_it(
    checked: Status, said: str | None, status: str
) -> None:
    """Mandated by architecture section 6: feedback of the same audience, from enough subjects."""
    later = datetime(2026, 6, 1, tzinfo=UTC)
    row = FeedbackRow(UUID(int=1), said, later) if said else None
    before = datetime.fromisoformat(AT) if checked is not Status.UNKNOWN else None
    verdict = with_feedback(Verdict(checked, before), row)
    assert verdict.status == status
    assert verdict.checked_at == (later if said else before)
