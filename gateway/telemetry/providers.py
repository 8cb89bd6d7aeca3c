"""The OpenTelemetry SDK, configured from settings and closed within a bound.

Without a collector's address and without a trace file nothing is exported, and spans are
still made (tests and embedders may add a processor). Measured on SDK 1.45: ``shutdown`` of a
provider whose collector is dead takes 5 s whatever timeout it is given, so it runs on a
daemon thread here and is waited for no longer than the bound.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from gateway.decisions.opening import open_log, publish
from gateway.settings import DecisionLogSettings, TelemetrySettings
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.counters import Counters
from gateway.telemetry.recorder import ChosenIds, Recorder
from gateway.telemetry.trace_lines import trace_line

SHUTDOWN_S: Final = 1.5
"""The longest that closing may take, all providers together."""

_EXPORT_TIMEOUT_S: Final = 2.0
_BATCH_MAX: Final = 512
_FILE_DELAY_MS: Final = 100
_SCOPE: Final = "gateway"


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A recorder and the means to flush and close what stands behind it."""

    recorder: Recorder
    counters: Counters
    _flushes: tuple[Callable[[], object], ...]
    _closes: tuple[Callable[[], object], ...]
    _access_log: AccessLog | None

    def flush(self) -> None:
        """Export what is queued, waiting at most ``SHUTDOWN_S``."""
        _bounded(self._flushes)

    def close(self) -> None:
        """Export what is queued and stop, within ``SHUTDOWN_S`` even with a dead collector."""
        if self._access_log is not None:
            self._access_log.close(timeout_s=0.3)
        _bounded(self._closes)


def open_telemetry(
    settings: TelemetrySettings,
    *,
    instance: str,
    decision_log: DecisionLogSettings | None = None,
    out: TextIO | None = None,
    span_processors: tuple[SpanProcessor, ...] = (),
    log_processors: tuple[LogRecordProcessor, ...] = (),
) -> Telemetry:
    """Telemetry for one gateway process. ``instance`` names it among its replicas.

    ``out`` takes what goes to standard output (which it is when left out). Further processors
    are added beside the configured ones.

    Raises: OSError when a file that is to be written cannot be opened.
    """
    resource = Resource.create(
        {"service.name": settings.service_name, "service.instance.id": instance}
    )
    ids = ChosenIds()
    tracers = TracerProvider(
        sampler=ALWAYS_ON, resource=resource, id_generator=ids, shutdown_on_exit=False
    )
    loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
    file = _appending(settings.trace_file) if settings.trace_file is not None else None
    # a provider closes its processors one after the other: the one that may hang comes last
    for span_processor in (*span_processors, *_span_processors(settings, file)):
        tracers.add_span_processor(span_processor)
    for log_processor in (*_log_processors(settings), *log_processors):
        loggers.add_log_record_processor(log_processor)
    counters = Counters()
    closes: list[Callable[[], object]] = [tracers.shutdown, loggers.shutdown]
    flushes: list[Callable[[], object]] = [tracers.force_flush, loggers.force_flush]
    if settings.otlp_endpoint is not None:
        meters = _meters(settings.otlp_endpoint, resource)
        counters.export(meters.get_meter(_SCOPE))
        closes.append(meters.shutdown)
    access_log = AccessLog(out or sys.stdout) if settings.access_log else None
    if access_log is not None:
        log = access_log
        counters.gauge("gateway_access_log_dropped", "Lines that did not fit.", lambda: log.dropped)
    decisions = None
    if decision_log is not None and decision_log.wanted:
        endpoint = settings.otlp_endpoint
        decisions = open_log(
            decision_log,
            resource=resource,
            otlp_endpoint=_signal(endpoint, "logs") if endpoint is not None else None,
            out=out or sys.stdout,
        )
        publish(decisions, counters)
        flushes += [partial(sink.flush, timeout_s=SHUTDOWN_S) for sink in decisions.sinks]
        closes += [partial(sink.close, timeout_s=SHUTDOWN_S) for sink in decisions.sinks]
    if file is not None:
        closes[0] = _then(tracers.shutdown, file.close)
    recorder = Recorder(
        tracer=tracers.get_tracer(_SCOPE),
        logger=loggers.get_logger(_SCOPE),
        ids=ids,
        counters=counters,
        access_log=access_log,
        decisions=decisions,
        sample_ratio=settings.sample_ratio,
    )
    return Telemetry(recorder, counters, tuple(flushes), tuple(closes), access_log)


def _span_processors(settings: TelemetrySettings, file: TextIO | None) -> list[SpanProcessor]:
    processors: list[SpanProcessor] = []
    if file is not None:
        lines = ConsoleSpanExporter(out=file, formatter=trace_line)
        processors.append(
            BatchSpanProcessor(
                lines,
                max_queue_size=settings.queue_max,
                max_export_batch_size=_batch(settings),
                schedule_delay_millis=_FILE_DELAY_MS,
            )
        )
    if settings.otlp_endpoint is not None:
        collector = OTLPSpanExporter(
            endpoint=_signal(settings.otlp_endpoint, "traces"), timeout=_EXPORT_TIMEOUT_S
        )
        processors.append(
            BatchSpanProcessor(
                collector,
                max_queue_size=settings.queue_max,
                max_export_batch_size=_batch(settings),
            )
        )
    return processors


def _log_processors(settings: TelemetrySettings) -> list[LogRecordProcessor]:
    if settings.otlp_endpoint is None:
        return []
    exporter = OTLPLogExporter(
        endpoint=_signal(settings.otlp_endpoint, "logs"), timeout=_EXPORT_TIMEOUT_S
    )
    return [
        BatchLogRecordProcessor(
            exporter, max_queue_size=settings.queue_max, max_export_batch_size=_batch(settings)
        )
    ]


def _batch(settings: TelemetrySettings) -> int:
    """The SDK refuses a batch that is larger than its queue."""
    return min(_BATCH_MAX, settings.queue_max)


def _meters(endpoint: str, resource: Resource) -> MeterProvider:
    exporter = OTLPMetricExporter(endpoint=_signal(endpoint, "metrics"), timeout=_EXPORT_TIMEOUT_S)
    return MeterProvider(
        [PeriodicExportingMetricReader(exporter)], resource=resource, shutdown_on_exit=False
    )


def _signal(endpoint: str, signal: str) -> str:
    """The address of one signal. Source: OTLP/HTTP, "Endpoint URLs for OTLP/HTTP"."""
    return f"{endpoint.rstrip('/')}/v1/{signal}"


def _then(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], object]:
    def both() -> None:
        first()
        second()

    return both


def _appending(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8", buffering=1)


def _bounded(calls: tuple[Callable[[], object], ...]) -> None:
    """Run all of ``calls`` at once, each on a daemon thread, and wait for ``SHUTDOWN_S``."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SHUTDOWN_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
