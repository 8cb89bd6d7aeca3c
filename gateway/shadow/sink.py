"""Where the shadow gets its requests: beside the sink that records them."""

from __future__ import annotations

from typing import Final, Protocol

from gateway.shadow.observer import Shadow
from gateway.telemetry.counters import Counters
from gateway.telemetry.fields import RequestRecord
from gateway.telemetry.trace import TraceContext

_COMPARED: Final = ("point",)
_DISAGREED: Final = ("point", "direction", "profile")


class Sink(Protocol):
    """Where requests are traced, counted and logged."""

    def begin(self, traceparent: bytes | None, *, trusted: bool) -> TraceContext: ...

    def record(self, record: RequestRecord) -> None: ...


class ShadowedSink:
    """A sink whose requests are looked up in the candidate, too, once they are recorded."""

    def __init__(self, sink: Sink, shadow: Shadow) -> None:
        self._sink = sink
        self._shadow = shadow

    def begin(self, traceparent: bytes | None, *, trusted: bool) -> TraceContext:
        return self._sink.begin(traceparent, trusted=trusted)

    def record(self, record: RequestRecord) -> None:
        self._sink.record(record)
        self._shadow.observe(record.facts, route=record.route, method=record.method)


def publish(shadow: Shadow, counters: Counters) -> None:
    """Let both doors of the metrics show what the shadow counts."""
    counters.family(
        "gateway_shadow_compared_total",
        "Decisions looked up in a candidate policy, too.",
        _COMPARED,
        shadow.compared,
    )
    counters.family(
        "gateway_shadow_disagreements_total",
        "Decisions that the candidate would have made otherwise.",
        _DISAGREED,
        shadow.disagreed,
    )
    counters.family(
        "gateway_shadow_faults_total", "Comparisons that failed; no request did.", (), shadow.faults
    )
