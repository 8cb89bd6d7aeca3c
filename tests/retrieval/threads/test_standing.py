"""Explicit references, health verdicts and the choice among candidates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.contract import Signal
from retrieval.settings import ResolutionSettings
from retrieval.stores.rows import Facets, ThreadRow
from retrieval.threads.health import Status, Verdict, combine
from retrieval.threads.rank import Candidate, Standing, chosen
from retrieval.threads.resolve import references_in

UUID_TEXT = "6e433b91-601b-52bf-8741-8cc35f781b3e"
SETTINGS = ResolutionSettings()


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
    score: float,
    *,
    status: Status = Status.UNKNOWN,
    day: int = 1,
    authority: str = "enacted",
    stages: int = 1,
    empty: bool = False,
) -> Standing:
    facets = Facets("public", "published", "published", "standard", authority, "thread")
    moment = datetime(2026, 1, day, tzinfo=UTC)
    thread = ThreadRow(
        UUID(int=number), f"t:{number}", "", (), "", "", 1, "*", "*", facets, "active"
    )
    signal = Signal(source="keyword", score=score)
    return Standing(
        Candidate(thread, score, (signal,)), Verdict(status, None), moment, stages, empty
    )


def _numbers(standings: list[Standing]) -> list[int]:
    return [candidate.thread.id.int for candidate in chosen(standings, SETTINGS)]


@pytest.mark.parametrize(
    ("standings", "order"),
    [
        ([_standing(1, 0.9), _standing(2, 0.6)], [1]),
        ([_standing(1, 0.8), _standing(2, 0.9)], [2, 1]),
        ([_standing(n, 0.9) for n in (5, 4, 3, 2, 1)], [1, 2, 3]),
        ([_standing(1, 0.9, status=Status.STALE), _standing(2, 0.85)], [2]),
        ([_standing(1, 0.9, empty=True), _standing(2, 0.5)], [2]),
        ([_standing(1, 0.9, day=1), _standing(2, 0.9, day=2)], [2, 1]),
        ([_standing(1, 0.9, authority="runtime"), _standing(2, 0.9)], [2, 1]),
        ([_standing(1, 0.9, stages=1), _standing(2, 0.9, stages=3)], [2, 1]),
        ([], []),
    ],
)
def test_one_thread_stands_alone_or_several_are_offered(
    standings: list[Standing], order: list[int]
) -> None:
    """Mandated by seed 4.2 and 4.3: relevance, recency, authority, health, coverage."""
    assert _numbers(standings) == order


@given(st.lists(st.tuples(st.integers(1, 99), st.floats(0.45, 1)), max_size=8), st.randoms())
def test_the_choice_does_not_depend_on_the_order_of_candidates(
    pairs: list[tuple[int, float]], rng: Any
) -> None:
    """A total order, so that equal requests are equal bytes."""
    standings = [_standing(number, round(score, 6)) for number, score in dict(pairs).items()]
    shuffled = standings.copy()
    rng.shuffle(shuffled)
    assert _numbers(shuffled) == _numbers(standings)


def test_a_thread_without_anything_readable_is_too_narrow() -> None:
    """For the fallback's trigger it counts as weak, whatever its verdict says."""
    assert _standing(1, 0.9, status=Status.HEALTHY, empty=True).status == "too_narrow"
    assert _standing(1, 0.9, status=Status.HEALTHY).status == "healthy"
