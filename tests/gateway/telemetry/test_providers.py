"""Collectors that live, hang or are gone: telemetry may be lost, nothing else."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from gateway.settings import TelemetrySettings
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.providers import open_telemetry
from tests.gateway.journal.made import event
from tests.gateway.telemetry.collector import collector
from tests.gateway.telemetry.made import SAMPLED, TRACE, Stuck, request


def test_full_queue_behind_a_stuck_collector_blocks_no_request() -> None:
    """Ten times the queue is recorded while the exporter hangs; every request is counted."""
    stuck = Stuck()
    telemetry = open_telemetry(
        TelemetrySettings(access_log=False),
        instance="test",
        span_processors=(BatchSpanProcessor(stuck, max_queue_size=8, max_export_batch_size=4),),
    )
    try:
        for _ in range(80):
            telemetry.recorder.record(request(TRACE, event()))
        assert stuck.entered.wait(5)
        for _ in range(80):
            telemetry.recorder.record(request(TRACE, event()))
        # all of it was recorded before the collector answered anything
        assert not stuck.released.is_set()
        assert 'action="withheld"} 160\n' in telemetry.counters.text()
        telemetry.close()  # and closing does not wait for it either
        assert not stuck.released.is_set()
    finally:
        stuck.released.set()


def test_collector_that_refuses_costs_nothing_but_its_telemetry() -> None:
    """A dead address: recording and closing go on, nothing is raised."""
    settings = TelemetrySettings(otlp_endpoint="http://127.0.0.1:1", access_log=False)
    telemetry = open_telemetry(settings, instance="test")
    telemetry.recorder.record(request(TRACE, event()))
    telemetry.close()
    assert 'action="withheld"} 1\n' in telemetry.counters.text()


def test_event_reaches_a_collector_as_span_and_log_record() -> None:
    """Standard OTLP over HTTP, decoded with the standard's own messages."""
    made = event(trace_id=TRACE.trace_hex)
    with collector() as (address, bodies):
        telemetry = open_telemetry(
            TelemetrySettings(otlp_endpoint=address, access_log=False), instance="test"
        )
        telemetry.recorder.record(request(TRACE, made))
        telemetry.close()
    spans = ExportTraceServiceRequest.FromString(bodies["/v1/traces"][0])
    (span,) = spans.resource_spans[0].scope_spans[0].spans
    logs = ExportLogsServiceRequest.FromString(bodies["/v1/logs"][0])
    (record,) = logs.resource_logs[0].scope_logs[0].log_records
    assert span.trace_id.hex() == record.trace_id.hex() == made.trace_id
    assert "wrong_audience_result" in [one.name for one in span.events]
    assert record.event_name == "wrong_audience_result"
    assert "/v1/metrics" in bodies


def test_trace_file_holds_one_json_object_per_span(tmp_path: Path) -> None:
    """How the demo shows a trace without a collector."""
    target = tmp_path / "deep" / "traces.jsonl"
    telemetry = open_telemetry(
        TelemetrySettings(trace_file=target, access_log=False), instance="test"
    )
    telemetry.recorder.record(request(SAMPLED))
    telemetry.recorder.record(request(TRACE, event()))
    telemetry.close()
    first, second = map(json.loads, target.read_text().splitlines())
    assert first["context"]["trace_id"] == "0x" + SAMPLED.trace_hex
    assert second["events"][-1]["name"] == "wrong_audience_result"


class StuckPipe(io.StringIO):
    """A standard output whose reader has stopped reading."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.released.wait()
        return super().write(text)


def test_blocked_terminal_blocks_no_request() -> None:
    """The event loop never waits for a pipe: lines that do not fit are dropped and counted."""
    pipe = StuckPipe()
    log = AccessLog(pipe)
    try:
        log.add(request())
        assert pipe.entered.wait(5)
        for _ in range(5_000):
            log.add(request())
        assert log.dropped > 0
        log.close(timeout_s=0.01)
        assert not pipe.released.is_set()
    finally:
        pipe.released.set()
