"""Health checks: what is judged, and that a part is judged by itself alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.owners.checking import check_health
from retrieval.owners.checks import Limits, judge
from retrieval.stores.roles import CURATE, dsn_for
from retrieval.threads.health import Status, combine
from tests.retrieval.ingest.bench import unit
from tests.retrieval.owners.desk import Desk, new

NOW = datetime(2026, 11, 30, tzinfo=UTC)
LIMITS = Limits(stale_after=timedelta(days=10), units_min=2, units_max=5)


@pytest.mark.parametrize(
    ("units", "days", "status"),
    [
        (2, 0, Status.HEALTHY),
        (5, 10, Status.HEALTHY),
        (6, 10, Status.OVERBROAD),
        (1, 0, Status.TOO_NARROW),
        (3, 11, Status.STALE),
        (9, 11, Status.STALE),
        (3, None, Status.STALE),
    ],
)
def test_a_part_is_judged_by_its_units_and_its_last_activity(
    units: int, days: int | None, status: Status
) -> None:
    last = None if days is None else NOW - timedelta(days=days)
    assert judge(units, last, now=NOW, limits=LIMITS).status is status


def words(status: Status) -> dict[str, object]:
    return {"status": status.value, "checked_at": NOW.isoformat()}


alone = st.sampled_from([Status.STALE, Status.TOO_NARROW])
others = st.sampled_from([Status.HEALTHY, Status.OVERBROAD, Status.UNKNOWN])


@given(st.lists(alone, min_size=1), st.lists(others))
def test_a_thread_is_stale_if_every_part_is_and_narrow_if_it_has_one_part(
    own: list[Status], more: list[Status]
) -> None:
    """It is as fresh as its freshest part and as broad as all of them together."""
    found = combine([words(one) for one in (*own, *more)]).status
    if more:
        assert found in more
    elif set(own) == {Status.STALE} or len(own) == 1:
        assert found is own[0]
    else:
        assert found is Status.HEALTHY


def test_a_check_writes_a_verdict_with_time_and_reason_into_every_part(desk: Desk) -> None:
    """Old units, few units, enough of them: three threads; and the next check takes it back."""
    old = (NOW - timedelta(days=20)).isoformat()
    fresh = (NOW - timedelta(days=1)).isoformat()
    desk.run([unit(f"x/{n}", active_at=old if n < 3 else fresh) for n in range(7)], origin="ours")
    for thread, units in (("t/old", (0, 1)), ("t/one", (3,)), ("t/two", (4, 5))):
        members = [{"do": "add_member", "unit": f"x/{n}"} for n in units]
        desk.edit(new(), *members, thread=thread)
    dsn = dsn_for(CURATE, desk.database.url, desk.database.secret)
    counts = check_health(dsn, source="ours", limits=LIMITS, now=NOW)
    assert counts == {"stale": 1, "too_narrow": 1, "healthy": 1}
    assert health(desk) == {
        "t/old": ("stale", NOW.isoformat(), "last active 20 days ago, limit 10 days"),
        "t/one": ("too_narrow", NOW.isoformat(), "1 units, limit 2"),
        "t/two": ("healthy", NOW.isoformat(), ""),
    }
    assert [p.health["status"] for p in desk.owners.show("ours", "t/old").parts] == ["stale"]
    assert desk.all(
        "select made_by, source, limits, found from brain.thread_check"
        " where checked_at = '2026-11-30'"
    ) == [("command", "ours", LIMITS.told(), counts)]
    later = NOW + timedelta(days=1)
    assert check_health(dsn, limits=Limits(units_min=1), now=later) == {"healthy": 3}
    assert {said[1] for said in health(desk).values()} == {later.isoformat()}


def health(desk: Desk) -> dict[str, tuple[Any, ...]]:
    rows = desk.all(
        "select t.canonical_address, p.health ->> 'status', p.health ->> 'checked_at',"
        " p.health ->> 'reason' from brain.thread_partial p join brain.thread t"
        " on t.id = p.thread_id"
    )
    return {row[0]: row[1:] for row in rows}


def test_what_is_hidden_changes_no_verdict_on_another_part(desk: Desk) -> None:
    """A secret unit of the same thread has a part of its own."""
    desk.edit(new(), {"do": "add_member", "unit": "u/1"}, thread="t/1")
    dsn = dsn_for(CURATE, desk.database.url, desk.database.secret)
    check_health(dsn, limits=LIMITS, now=NOW)
    before = {(p.class_id, str(p.health)) for p in desk.owners.show("ours", "t/1").parts}
    desk.run([unit(f"s/{n}", visibility="restricted") for n in range(9)], origin="ours")
    members = [{"do": "add_member", "unit": f"s/{n}"} for n in range(9)]
    desk.edit(*members, thread="t/1", expected=1)
    check_health(dsn, limits=LIMITS, now=NOW)
    after = {(p.class_id, str(p.health)) for p in desk.owners.show("ours", "t/1").parts}
    assert before < after
    assert len(after) == 2


def test_a_check_of_one_source_leaves_the_others_alone(desk: Desk) -> None:
    desk.edit(new(), {"do": "add_member", "unit": "v/1"}, source="theirs")
    dsn = dsn_for(CURATE, desk.database.url, desk.database.secret)
    assert check_health(dsn, source="ours") == {}
    assert desk.all("select health from brain.thread_partial") == [({},)]
