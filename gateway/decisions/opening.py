"""The decision log as the settings want it: its sinks, its redaction, its counts as metrics."""

from __future__ import annotations

from typing import Final, TextIO

from opentelemetry.sdk.resources import Resource

from gateway.decisions.log import DecisionLog
from gateway.decisions.redaction import Redaction
from gateway.decisions.sinks import FileSink, LineSink, OtlpSink, Sink
from gateway.settings import DecisionLogSettings
from gateway.telemetry.counters import Counters

_EXPORT_TIMEOUT_S: Final = 2.0


def open_log(
    settings: DecisionLogSettings, *, resource: Resource, otlp_endpoint: str | None, out: TextIO
) -> DecisionLog:
    """A log that writes to every sink of the settings.

    ``otlp_endpoint`` is the address of a collector's logs. Raises: OSError for the file.
    """
    sinks: list[Sink] = []
    if settings.file is not None:
        sinks.append(FileSink(settings.file, queue_max=settings.queue_max))
    if settings.stdout:
        sinks.append(LineSink(out, queue_max=settings.queue_max))
    if settings.otlp and otlp_endpoint is not None:
        sinks.append(
            OtlpSink(
                otlp_endpoint,
                resource=resource,
                queue_max=settings.queue_max,
                timeout_s=_EXPORT_TIMEOUT_S,
            )
        )
    key = settings.mask_key.get_secret_value() if settings.mask_key is not None else ""
    return DecisionLog(
        sinks,
        redaction=Redaction(mask=settings.mask, drop=settings.drop, key=key),
        ratio=settings.sample_ratio,
        per_second=settings.rate_max,
    )


def publish(log: DecisionLog, counters: Counters) -> None:
    """Show what became of the records among the process's counts."""
    counts = log.counts
    for name, text, read in (
        ("written", "Records given to the sinks.", lambda: counts.written),
        ("sampled_out", "Allows left out by the ratio.", lambda: counts.sampled_out),
        ("rate_limited", "Records left out by the rate.", lambda: counts.rate_limited),
        ("defective", "Records that could not be made.", lambda: counts.defective),
        ("lost", "Records that a sink did not take or could not write.", lambda: log.lost),
    ):
        counters.gauge(f"gateway_decision_log_{name}", text, read)
