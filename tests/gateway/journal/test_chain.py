"""The chain over events as a pure function: every touch shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.chain import COLUMNS, EMPTY, Break, Head, Seal, Walk, canonical, extend

Row = tuple[object, ...]


def row(number: int) -> Row:
    """An event's row as Postgres gives it."""
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
    return (
        uuid4(), when, "wrong_audience_result", "critical", f"req-{number}", "a" * 32, "customer",
        "customer", "b" * 64, "retrieve", [uuid4()], 1, [number % 7], "hydrate", "c" * 64,
        "withheld",
    )  # fmt: skip


def found(seals: list[Seal], kept: Head = EMPTY) -> list[Break]:
    walk = Walk(kept)
    for seal in seals:
        walk.feed(seal)
    return [finding.what for finding in walk.end()]


chains = st.integers(1, 12).map(lambda n: list(extend(EMPTY, [row(i) for i in range(n)])))


@given(chains)
def test_untouched_chain_has_no_finding(seals: list[Seal]) -> None:
    """The ground: no false alarm, whatever its length, also against its own head."""
    assert found(seals) == []
    assert found(seals, Head(seals[-1].position, seals[-1].hash)) == []


@given(chains, st.data())
def test_any_changed_column_of_any_event_is_found(seals: list[Seal], data: st.DataObject) -> None:
    """Every column is covered: an edit that only moves the time or one unit id shows too."""
    at = data.draw(st.integers(0, len(seals) - 1))
    column = data.draw(st.integers(0, len(COLUMNS) - 1))
    event = seals[at].event
    assert event is not None
    changed: dict[type, object] = {
        UUID: uuid4(), datetime: datetime(2020, 1, 1, tzinfo=UTC), str: "x", int: 99, list: [],
    }  # fmt: skip
    value = changed[type(event[column])]
    seals[at] = replace(seals[at], event=(*event[:column], value, *event[column + 1 :]))
    assert found(seals) == [Break.EVENT_CHANGED]


@given(chains, st.data())
def test_removed_event_is_found_by_its_seal(seals: list[Seal], data: st.DataObject) -> None:
    """Deletion of a row under its seal."""
    at = data.draw(st.integers(0, len(seals) - 1))
    seals[at] = replace(seals[at], event=None)
    assert found(seals) == [Break.EVENT_MISSING]


@given(chains.filter(lambda seals: len(seals) > 1), st.data())
def test_removed_seal_leaves_a_hole(seals: list[Seal], data: st.DataObject) -> None:
    """Deletion of a row with its seal, anywhere before the end."""
    at = data.draw(st.integers(0, len(seals) - 2))
    del seals[at]
    assert Break.SEAL_MISSING in found(seals)


@given(chains.filter(lambda seals: len(seals) > 1), st.data())
def test_removed_pair_with_positions_closed_up_is_found(
    seals: list[Seal], data: st.DataObject
) -> None:
    """An attacker who renumbers what is left still cannot make it follow."""
    at = data.draw(st.integers(0, len(seals) - 2))
    del seals[at]
    closed = [replace(seal, position=n) for n, seal in enumerate(seals, start=1)]
    assert Break.SEAL_REORDERED in found(closed)


@given(chains.filter(lambda seals: len(seals) > 1), st.data())
def test_reordered_seals_do_not_follow(seals: list[Seal], data: st.DataObject) -> None:
    """Two neighbours exchanged, positions made to fit."""
    at = data.draw(st.integers(0, len(seals) - 2))
    one, two = seals[at], seals[at + 1]
    seals[at] = replace(two, position=one.position)
    seals[at + 1] = replace(one, position=two.position)
    assert Break.SEAL_REORDERED in found(seals)


@given(chains.filter(lambda seals: len(seals) > 1), st.data())
def test_cut_tail_is_found_with_a_head_kept_elsewhere(
    seals: list[Seal], data: st.DataObject
) -> None:
    """The one touch that the rows alone cannot show (see the module's theory)."""
    head = Head(seals[-1].position, seals[-1].hash)
    cut = seals[: data.draw(st.integers(0, len(seals) - 1))]
    assert found(cut) == []
    assert found(cut, head) == [Break.HEAD_MISSING]


def test_time_is_canonical_whatever_zone_the_session_has() -> None:
    """The hash must not depend on the session's time zone."""
    made = row(3)
    moved = (made[0], made[1].astimezone(timezone(timedelta(hours=9))), *made[2:])  # type: ignore[attr-defined]
    assert canonical(moved) == canonical(made)


@pytest.mark.parametrize(
    "text", ["", "1", "1:", "-1:" + "a" * 64, "1:" + "A" * 64, "1:" + "a" * 63]
)
def test_head_of_another_form_is_refused(text: str) -> None:
    """A misread head would make a cut tail look whole."""
    with pytest.raises(ValueError, match="POSITION:HASH"):
        Head.parse(text)


def test_head_reads_back_what_it_prints() -> None:
    """What `gateway events verify` prints can be passed to it again."""
    head = Head(4, "f" * 64)
    assert Head.parse(str(head)) == head
