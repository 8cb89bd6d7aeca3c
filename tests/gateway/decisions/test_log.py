"""Which requests are in the log: a share of the allows, every refusal, every denial of a unit.

Provenance: issue 3 item 7 ("sampling for allows and never for denials of units, rate limit").
"""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.facts import UnitCounts
from gateway.decisions.log import denies_a_unit
from gateway.decisions.sampling import kept
from gateway.telemetry.fields import RequestRecord
from policies.snapshot import Snapshot
from tests.gateway.decisions.made import (
    Entries,
    Kept,
    facts,
    finished,
    log,
    refused,
    requests,
    tally,
)
from tests.gateway.journal.made import event


def denied(snapshot: Snapshot, **changed: Any) -> RequestRecord:
    """An allowed request from whose answer a unit was kept."""
    made = facts(snapshot, tally=tally(snapshot, [1], [2]))
    return finished(made, request_id=secrets.token_hex(8), **changed)


@given(st.data(), st.floats(0, 1))
def test_only_allows_are_sampled_and_by_their_id_alone(
    snapshot: Snapshot, data: st.DataObject, ratio: float
) -> None:
    records = data.draw(st.lists(requests(snapshot), max_size=8))
    sink = Kept()
    written = log(sink, ratio=ratio)
    for record in records:
        written.add(record)
    expected = [
        record.request_id
        for record in records
        if record.decision == "deny" or denies_a_unit(record) or kept(record.request_id, ratio)
    ]
    assert [one["request_id"] for one in sink.values] == expected
    for one in sink.values:
        always = one["effect"] == "deny" or one["units"]["denied"] or one["units"]["stale"]
        assert one["sampled"] == (1.0 if always else ratio)
    assert written.counts.sampled_out == len(records) - len(expected)


def test_a_denial_of_a_unit_is_written_whatever_is_set(snapshot: Snapshot) -> None:
    """Ratio 0 and a rate of one a second: withheld, late, hidden or absent, or journaled."""
    sink = Kept()
    written = log(sink, ratio=0, per_second=1)
    late = finished(facts(snapshot, tally=tally(snapshot, late=1)))
    hidden = finished(facts(snapshot), decision="deny", code="not_found", route="unit")
    journaled = finished(facts(snapshot), event=event())
    for _ in range(50):
        for record in (denied(snapshot), late, hidden, journaled):
            written.add(record)
    assert len(sink.values) == 200
    assert written.counts.rate_limited == written.counts.sampled_out == 0


def test_a_path_that_does_not_exist_is_no_denial_of_a_unit() -> None:
    """No route matched: nothing governed was named, so a scan of paths meets the rate."""
    sink = Kept()
    written = log(sink, per_second=1)
    for _ in range(50):
        written.add(refused("not_found"))
    assert len(sink.values) == 1


def test_what_the_rate_left_out_is_said_by_the_next_record(snapshot: Snapshot) -> None:
    sink = Kept()
    written = log(sink, per_second=2)
    for _ in range(10):
        written.add(refused())
    written.add(denied(snapshot))
    written.add(denied(snapshot))
    assert [one["dropped"] for one in sink.values] == [0, 0, 8, 0]
    assert written.counts.rate_limited == 8
    assert sum(one["dropped"] for one in sink.values) == written.counts.rate_limited


@given(st.data())
def test_every_loss_is_told_once_by_a_record_that_arrived(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """Rate, full queue, full disk: also losses that a lost record would have told of."""
    sink = Kept(queue_max=data.draw(st.integers(1, 8)))
    written = log(sink, per_second=data.draw(st.integers(1, 5)))
    happened = 0
    for _ in range(data.draw(st.integers(1, 4))):
        sink.out.full = data.draw(st.booleans())
        sink.out.opened.clear()
        for weighty in data.draw(st.lists(st.booleans(), max_size=25)):
            written.add(denied(snapshot) if weighty else refused())
            happened += 1
        sink.out.opened.set()
        assert sink.flush(timeout_s=20)
    sink.out.full = False
    written.add(denied(snapshot))
    arrived = sink.values
    lost = written.counts.rate_limited + written.lost
    assert len(arrived) + lost == happened + 1
    assert sum(one["dropped"] for one in arrived) == lost
    sink.close(timeout_s=5)


def test_allows_do_not_crowd_out_the_denial_of_a_unit(snapshot: Snapshot) -> None:
    """A stuck sink and a full queue: there is room that only denials of units may use."""
    sink = Kept(queue_max=10)
    written = log(sink)
    sink.out.opened.clear()
    written.add(refused())
    assert sink.out.entered.wait(5)
    for _ in range(500):
        written.add(finished(facts(snapshot)))
    for _ in range(10):
        written.add(denied(snapshot))
    sink.out.opened.set()
    assert sum(one["units"]["denied"] for one in sink.values) == 10
    assert len(sink.values) == 21


def test_a_dead_sink_is_no_gap_in_another(snapshot: Snapshot) -> None:
    """Each sink tells its own losses."""
    dead, alive = Kept(), Kept()
    dead.out.full = True
    written = log(dead, alive)
    for _ in range(5):
        written.add(denied(snapshot))
        assert dead.flush(timeout_s=20)
    assert [one["dropped"] for one in alive.values] == [0] * 5
    dead.out.full = False
    written.add(denied(snapshot))
    assert [one["dropped"] for one in dead.values] == [5]


class Broken:
    """A tally with a defect."""

    withheld = True

    def counts(self) -> UnitCounts:
        raise ZeroDivisionError("a unit's title")


def test_a_defect_of_the_log_fails_no_request_and_is_counted(
    snapshot: Snapshot, caplog: pytest.LogCaptureFixture
) -> None:
    """The process log names the kind of error, never its text."""
    sink = Kept()
    written = log(sink)
    written.add(finished(facts(snapshot, tally=Broken())))
    written.add(denied(snapshot))
    assert written.counts.defective == 1
    assert [one["dropped"] for one in sink.values] == [1]
    assert "ZeroDivisionError" in caplog.text
    assert "title" not in caplog.text


def test_a_hidden_trace_id_is_not_told_beside_the_record(snapshot: Snapshot) -> None:
    """A collector gets the trace's id with each log record, unless it is masked or dropped."""
    for mask, drop in (((), ()), (("trace_id",), ()), ((), ("trace_id",))):
        sink = Entries()
        log(sink, mask=mask, drop=drop).add(denied(snapshot))
        assert (sink.entries[0].trace is None) == bool(mask or drop)
