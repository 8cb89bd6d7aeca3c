"""A line of the trace file says what the SDK's own form of the span says."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from gateway.settings import TelemetrySettings
from gateway.telemetry.fields import RequestRecord, StationTime
from gateway.telemetry.providers import open_telemetry
from gateway.telemetry.trace import PeerTrace, TraceContext
from gateway.telemetry.trace_lines import trace_line
from tests.gateway.journal.made import event
from tests.gateway.telemetry.made import SAMPLED, request

_PEER = PeerTrace(0xA, 0xB, sampled=True)


class _Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def _failed() -> RequestRecord:
    record = request(SAMPLED)
    record.status, record.code = 502, "upstream_invalid"
    record.stations = (StationTime("admit", record.started_ns, record.started_ns + 2_000),)
    return record


@pytest.mark.parametrize(
    "record",
    [
        request(SAMPLED),
        request(SAMPLED, event()),
        request(TraceContext(7, 8, True, _PEER)),
        request(TraceContext(10, 8, True, _PEER, continued=True)),
        _failed(),
    ],
    ids=["plain", "event", "linked", "continued", "failed"],
)
def test_line_says_what_the_sdk_says(record: RequestRecord) -> None:
    kept = _Kept()
    telemetry = open_telemetry(
        TelemetrySettings(access_log=False), instance="test", span_processors=(kept,)
    )
    telemetry.recorder.record(record)
    telemetry.close()
    (span,) = kept.spans
    line = trace_line(span)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert json.loads(line) == json.loads(span.to_json(indent=None))
