"""Records of finished requests for the tests of telemetry."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from gateway.journal.event import SecurityEvent
from gateway.telemetry.fields import RequestRecord, StationTime
from gateway.telemetry.trace import TraceContext

TRACE = TraceContext(trace_id=0xABC, span_id=0xDEF, sampled=False)
SAMPLED = TraceContext(trace_id=0xABC, span_id=0xDEF, sampled=True)


def request(
    trace: TraceContext = SAMPLED, event: SecurityEvent | None = None, **changed: Any
) -> RequestRecord:
    """A request of 5 ms with two stations; ``changed`` replaces fields of the record."""
    given: dict[str, Any] = {
        "request_id": "req-1",
        "surface": "api",
        "method": "POST",
        "route": "retrieve",
        "audience": "customer",
        "profile": "customer",
        "decision": "allow",
        "status": 200,
        "code": "",
        "policy_digest": "d" * 64,
        "began_ns": 1_767_225_600_000_000_000,
        "started_ns": 1_000_000,
        "ended_ns": 6_000_000,
        "stations": (
            StationTime("admit", 1_000_000, 2_000_000),
            StationTime("relay", 2_000_000, 5_500_000),
        ),
    } | changed
    return RequestRecord(trace=trace, event=event, **given)


class Stuck(SpanExporter):
    """A collector that has accepted a batch and never answers, until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        self.entered.set()
        self.released.wait()
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Nothing to end: the export that hangs is released by the test."""
