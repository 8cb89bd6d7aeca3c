"""One call per request: which spans, records, counts and lines it leaves."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.errors import Code
from gateway.journal.event import EventKind, JournalUnavailable, SecurityEvent
from gateway.settings import TelemetrySettings
from gateway.telemetry.access_log import line
from gateway.telemetry.fields import EVENT, REQUEST, STATION, checked
from gateway.telemetry.providers import Telemetry, open_telemetry
from gateway.telemetry.recorder import NotingJournal
from gateway.telemetry.trace import PeerTrace, TraceContext
from tests.gateway.journal.made import MemoryJournal, event
from tests.gateway.telemetry.made import SAMPLED, TRACE, request


@dataclass
class Seen:
    """A recorder with exporters that keep what they get."""

    telemetry: Telemetry
    spans: InMemorySpanExporter
    logs: InMemoryLogRecordExporter
    lines: io.StringIO

    def span(self) -> ReadableSpan:
        (span,) = self.spans.get_finished_spans()
        return span


@pytest.fixture
def seen() -> Iterator[Seen]:
    spans, lines = InMemorySpanExporter(), io.StringIO()
    logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]  # theirs has no types
    telemetry = open_telemetry(
        TelemetrySettings(),
        instance="test",
        out=lines,
        span_processors=(SimpleSpanProcessor(spans),),
        log_processors=(SimpleLogRecordProcessor(logs),),
    )
    yield Seen(telemetry, spans, logs, lines)
    telemetry.close()


def test_unsampled_request_is_counted_and_makes_no_span(seen: Seen) -> None:
    """Sampling is what keeps the cost of the path (libraries.md, calibration)."""
    seen.telemetry.recorder.record(request(TRACE))
    assert seen.spans.get_finished_spans() == ()
    assert 'gateway_requests_total{method="POST",route="retrieve"' in seen.telemetry.counters.text()


def test_request_with_an_event_is_traced_even_if_not_sampled(seen: Seen) -> None:
    """An event is always traced, under the trace id that its row carries."""
    made = event(trace_id=TRACE.trace_hex)
    seen.telemetry.recorder.record(request(TRACE, made))
    span = seen.span()
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == made.trace_id
    assert span.context.span_id == TRACE.span_id
    (found,) = [one for one in span.events if one.name == "wrong_audience_result"]
    assert found.attributes is not None
    assert found.attributes["gateway.unit_ids"] == tuple(map(str, made.unit_ids))


class Refusing(MemoryJournal):
    """A journal whose database is gone."""

    async def record(self, event: SecurityEvent) -> None:
        raise JournalUnavailable(str(event.event_id))


def test_event_of_a_refused_request_is_traced_with_it(seen: Seen) -> None:
    """The request that ends in 503 bears the event as well: stations need not carry it along."""
    journal = NotingJournal(MemoryJournal(), seen.telemetry.recorder)
    asyncio.run(journal.record(event(trace_id=TRACE.trace_hex)))
    seen.telemetry.recorder.record(request(TRACE, status=503, code="retrieval_unavailable"))
    seen.telemetry.recorder.record(request(TRACE))  # a later one of the same trace bears nothing
    assert "wrong_audience_result" in [one.name for one in seen.span().events]
    assert len(seen.logs.get_finished_logs()) == 1


def test_event_that_could_not_be_made_durable_is_seen_by_operators(seen: Seen) -> None:
    """Nothing leaves and there is no row: trace and log record are all that is left of it."""
    journal = NotingJournal(Refusing(), seen.telemetry.recorder)
    with pytest.raises(JournalUnavailable):
        asyncio.run(journal.record(event(trace_id=TRACE.trace_hex)))
    seen.telemetry.recorder.record(request(TRACE, status=503, code="journal_unavailable"))
    assert (seen.span().attributes or {})["gateway.code"] == "journal_unavailable"
    assert len(seen.logs.get_finished_logs()) == 1


def test_event_is_a_log_record_with_the_same_identity(seen: Seen) -> None:
    """Issue item 5: span event and log record, both with the trace id."""
    made = event(trace_id=TRACE.trace_hex)
    seen.telemetry.recorder.record(request(TRACE, made))
    (log,) = seen.logs.get_finished_logs()
    record = log.log_record
    assert record.event_name == "wrong_audience_result"
    assert record.trace_id == TRACE.trace_id
    assert record.span_id == TRACE.span_id
    assert record.body is None
    assert record.severity_text == "critical"


def test_span_event_and_log_carry_exactly_the_permitted_attributes(seen: Seen) -> None:
    """Seed 4.12 and issue item 5: never content, address or query. The list is closed."""
    seen.telemetry.recorder.record(request(SAMPLED, event(kind=EventKind.STALE_INDEX)))
    span, (log,) = seen.span(), seen.logs.get_finished_logs()
    assert set(span.attributes or ()) == REQUEST
    for one in span.events:
        expected = EVENT if one.name == "stale_index" else STATION
        assert set(one.attributes or ()) == expected
    assert [one.name for one in span.events] == ["station.admit", "station.relay", "stale_index"]
    assert set(log.log_record.attributes or ()) == EVENT


def test_attribute_outside_the_list_is_a_defect() -> None:
    """The one way out refuses what is not listed, so a later edit cannot slip one in."""
    with pytest.raises(ValueError, match="query"):
        checked({"gateway.query": "x"}, REQUEST)


def test_fifty_ids_and_a_count_stand_in_the_span(seen: Seen) -> None:
    """Up to 50 unit ids and a count, one span event per request."""
    units = [(uuid4(), 1) for _ in range(120)]
    seen.telemetry.recorder.record(request(TRACE, event(units=units)))
    (found,) = [one for one in seen.span().events if one.name == "wrong_audience_result"]
    assert found.attributes is not None
    ids = found.attributes["gateway.unit_ids"]
    assert isinstance(ids, tuple)
    assert (len(ids), found.attributes["gateway.unit_count"]) == (50, 120)


def test_stations_stand_in_the_span_in_order_with_their_times(seen: Seen) -> None:
    """Times come from the stations; nothing is measured twice."""
    seen.telemetry.recorder.record(request())
    span = seen.span()
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 5_000_000
    assert [(e.name, (e.attributes or {})["duration_us"]) for e in span.events] == [
        ("station.admit", 1_000),
        ("station.relay", 3_500),
    ]
    assert span.events[0].timestamp - span.start_time == 1_000_000


def test_untrusted_peers_trace_is_a_link(seen: Seen) -> None:
    """`traceparent` of an untrusted peer is linked, never continued."""
    peer = PeerTrace(5, 6, sampled=True)
    seen.telemetry.recorder.record(request(TraceContext(7, 8, True, peer)))
    span = seen.span()
    assert span.parent is None
    assert span.context is not None
    assert span.context.trace_id == 7
    assert [(one.context.trace_id, one.context.span_id) for one in span.links] == [(5, 6)]


def test_trusted_peers_span_is_the_parent(seen: Seen) -> None:
    """The same with a peer of the snapshot's: one trace."""
    peer = PeerTrace(5, 6, sampled=True)
    seen.telemetry.recorder.record(request(TraceContext(5, 8, True, peer, continued=True)))
    span = seen.span()
    assert span.parent is not None
    assert span.context is not None
    assert (span.parent.span_id, span.context.trace_id, span.context.span_id) == (6, 5, 8)
    assert span.links == ()


def test_unknown_method_is_not_a_label(seen: Seen) -> None:
    """A caller must not be able to make series or attributes of its own words."""
    seen.telemetry.recorder.record(request(method="STEAL"))
    assert (seen.span().attributes or {})["http.request.method"] == "_OTHER"
    assert "STEAL" not in seen.telemetry.counters.text()


def test_access_log_has_one_line_per_request(seen: Seen) -> None:
    """JSON on standard output, decision and event included."""
    seen.telemetry.recorder.record(request())
    seen.telemetry.recorder.record(request(TRACE, event()))
    seen.telemetry.close()
    first, second = map(json.loads, seen.lines.getvalue().splitlines())
    assert (first["gateway.decision"], first["http.response.status_code"]) == ("allow", 200)
    assert first["trace_id"] == SAMPLED.trace_hex
    assert "security_event" not in first
    assert second["security_event"]["kind"] == "wrong_audience_result"


def test_access_log_has_a_line_for_who_was_refused_before_there_was_a_request(seen: Seen) -> None:
    """With peer, code and the id of the refusal; it is no request, so nothing else counts it."""
    before = seen.telemetry.counters.text()
    seen.telemetry.recorder.turned_away(Code.HEADERS_TOO_LARGE, "192.0.2.1", "r" * 32)
    assert seen.telemetry.counters.text() == before
    seen.telemetry.close()
    (told,) = map(json.loads, seen.lines.getvalue().splitlines())
    assert (told["peer"], told["gateway.request_id"]) == ("192.0.2.1", "r" * 32)
    assert (told["gateway.code"], told["http.response.status_code"]) == ("headers_too_large", 431)
    assert (told["gateway.surface"], told["gateway.decision"]) == ("protocol", "deny")
    assert seen.spans.get_finished_spans() == ()


@given(st.text(max_size=60), st.text(max_size=60))
def test_line_is_one_line_of_plain_ascii_whatever_stands_in_it(one: str, two: str) -> None:
    """Escape sequences, direction marks and line breaks cannot reach a terminal or forge lines."""
    text = line(request(request_id=one, peer=two + "\x1b[2J\u202e\x7f\x85\n"))
    assert all(" " <= character <= "~" for character in text)
    assert json.loads(text)["gateway.request_id"] == one
