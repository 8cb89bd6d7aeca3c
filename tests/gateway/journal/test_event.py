"""The form of a security event: opaque, capped, counted."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.event import (
    UNIT_IDS_MAX,
    EventKind,
    InvalidEvent,
    JournalError,
)
from tests.gateway.journal.made import MemoryJournal, event, until


@given(st.dictionaries(st.uuids(), st.integers(-1, 10_799), min_size=1, max_size=200))
def test_event_names_at_most_fifty_units_and_counts_all(units: dict[UUID, int]) -> None:
    """Architecture section 6: one row per request with up to 50 unit ids and a count."""
    made = event(units=units.items())
    assert made.unit_ids == tuple(sorted(units)[:UNIT_IDS_MAX])
    assert made.unit_count == len(units)
    assert set(made.class_ids) == {units[unit_id] for unit_id in made.unit_ids}
    assert list(made.class_ids) == sorted(set(made.class_ids))


@pytest.mark.parametrize(("count", "named"), [(1, 1), (50, 50), (51, 50), (200, 50)])
def test_cap_is_fifty_and_the_count_goes_on(count: int, named: int) -> None:
    """The border itself: random dictionaries seldom come near it."""
    made = event(units=[(uuid4(), 1) for _ in range(count)])
    assert (len(made.unit_ids), made.unit_count) == (named, count)


def test_same_unit_found_by_two_layers_is_counted_once() -> None:
    """Chosen by us: the count is of units, not of findings."""
    unit_id = uuid4()
    made = event(units=[(unit_id, 3), (unit_id, 3)], layers=("thread_index", "hydrate"))
    assert (made.unit_ids, made.unit_count) == ((unit_id,), 1)
    assert made.layer == "hydrate+thread_index"


def test_subject_is_named_by_hash_only() -> None:
    """Seed 4.12 with the privacy reading: a row must not name a person."""
    made = event(subject_id="idp:staff|alice@example.org")
    assert "alice" not in repr(made)
    assert len(made.subject_hash) == 64


@given(
    st.sampled_from(["request_id", "audience", "profile", "route", "trace_id", "policy_digest"]),
    st.text().filter(lambda text: any(c.isspace() or ord(c) > 127 for c in text)),
)
def test_words_of_a_caller_cannot_stand_in_an_event(field: str, text: str) -> None:
    """Never content, an address or a query: every text column has a closed form."""
    with pytest.raises(InvalidEvent):
        event(**dict[str, Any]({field: text}))


@pytest.mark.parametrize("layer", ["", "kb://a b", "Vector", "../x"])
def test_layer_is_one_of_our_words(layer: str) -> None:
    """A layer's name is joined into the row: only our own words may be."""
    with pytest.raises(InvalidEvent):
        event(layers=(layer,))


def test_event_about_no_unit_is_refused() -> None:
    """An event without a unit would be a false alarm that cannot be followed up."""
    with pytest.raises(JournalError):
        event(units=[])


def test_only_a_wrong_audience_result_is_critical() -> None:
    """Architecture section 6: a late index is a warning."""
    assert event().severity == "critical"
    assert event(kind=EventKind.STALE_INDEX).severity == "warning"


def test_memory_journal_keeps_an_event_once() -> None:
    """It stands in for the real one in other rooms' tests: same law, twice is once."""
    import asyncio

    async def main() -> None:
        journal, made = MemoryJournal(), event()
        await journal.record(made)
        await journal.record(made)
        assert journal.events == [made]

        async def kept() -> bool:
            return len(journal.events) == 1

        await until(kept)

    asyncio.run(main())
