"""Where records go: JSON lines (standard output, a file) and a collector's logs by OTLP/HTTP.

Each sink has a queue and a thread of its own, so that one that is stuck delays no other. The
SDK's batching is not used: its queue drops the oldest record silently, and a denial of a unit
must neither be displaced by an allow nor be lost uncounted.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TextIO

import orjson
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from gateway.decisions.writing import Values
from gateway.telemetry.drain import Drain
from gateway.telemetry.trace import TraceContext

EVENT_NAME: Final = "audience-gateway.decision"
_line: Final = partial(orjson.dumps, option=orjson.OPT_APPEND_NEWLINE)
_LINGER_S: Final = 0.5
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


@dataclass(frozen=True, slots=True)
class Entry:
    """One record on its way to the sinks. ``trace`` is None where its id may not leave.

    ``left_out`` counts the records, since the start, that no sink was given.
    """

    values: Values
    ended_ns: int
    trace: TraceContext | None
    weighty: bool
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    """An entry of one sink, and how many records this one says were dropped before it."""

    entry: Entry
    dropped: int

    @property
    def values(self) -> Values:
        return self.entry.values | {"dropped": self.dropped}


class Sink(Protocol):
    """Takes entries without waiting; counts what it lost."""

    @property
    def lost(self) -> int:
        """Entries that did not fit or could not be written, since the start."""
        ...

    def put(self, entry: Entry) -> None:
        """Queue one entry, or count it as lost."""
        ...

    def flush(self, *, timeout_s: float) -> object:
        """Return when what is queued was written, after at most ``timeout_s``."""
        ...

    def close(self, *, timeout_s: float) -> None:
        """Write what is queued, for at most ``timeout_s``, and end."""
        ...


class _Draining(ABC):
    """A sink over a drain. Each tells its own losses: a dead collector is no gap in a file.

    All counts only grow, and one thread writes each, so that no loss is told twice and none
    is forgotten: those that were told by records which were lost themselves are told again.
    """

    def __init__(self, *, name: str, queue_max: int, linger_s: float = 0.0) -> None:
        self._drain = Drain(self._put_out, name=name, items_max=queue_max, linger_s=linger_s)
        self._told = 0
        self._untold = 0

    @property
    def lost(self) -> int:
        return self._drain.overflowed + self._drain.failed

    def put(self, entry: Entry) -> None:
        dropped = entry.left_out + self.lost + self._untold - self._told
        if self._drain.put(_Told(entry, dropped), weighty=entry.weighty):
            self._told += dropped

    def _put_out(self, batch: list[_Told]) -> int:
        lost = batch[self._arrived(batch) :]
        self._untold += sum(one.dropped for one in lost)
        return len(lost)

    @abstractmethod
    def _arrived(self, batch: list[_Told]) -> int:
        """How many of the batch were written, from its start on. On the drain's thread."""

    def flush(self, *, timeout_s: float) -> bool:
        return self._drain.flush(timeout_s=timeout_s)

    def close(self, *, timeout_s: float) -> None:
        self._drain.close(timeout_s=timeout_s)


class LineSink(_Draining):
    """One JSON object per line on a stream that others write to as well."""

    def __init__(self, out: TextIO, *, queue_max: int) -> None:
        self._out = out
        super().__init__(name="decision-log", queue_max=queue_max)

    def _arrived(self, batch: list[_Told]) -> int:
        try:
            # one call, whole lines: the access log shares this stream
            self._out.write(_lines(batch).decode("ascii"))
            self._out.flush()
        except (OSError, ValueError):  # closed pipe, full disk, closed file
            return 0
        return len(batch)


class FileSink(_Draining):
    """One JSON object per line, appended to a file that only its owner can read.

    A line that a full disk or a crash cut short is ended before the next one is written, so
    that it spoils no other. A rotation by copy and truncate goes on at the new start.

    Raises: OSError when the file cannot be opened.
    """

    def __init__(self, path: Path, *, queue_max: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._cut = _is_cut(path)
        super().__init__(name="decision-file", queue_max=queue_max)

    def close(self, *, timeout_s: float) -> None:
        super().close(timeout_s=timeout_s)
        if self._drain.ended:  # a thread that is stuck in it still holds the file
            os.close(self._file)

    def _arrived(self, batch: list[_Told]) -> int:
        first = b"\n" if self._cut else b""
        text = first + _lines(batch)
        done = 0
        try:
            while done < len(text):
                done += os.write(self._file, text[done:])
        except OSError:  # a full disk takes a part
            self._cut = text[done - 1 : done] != b"\n" if done else self._cut
            return text.count(b"\n", len(first), done)
        self._cut = False
        return len(batch)


def _lines(batch: list[_Told]) -> bytes:
    return b"".join([_line(one.values) for one in batch])


def _is_cut(path: Path) -> bool:
    """Whether the file ends within a line. A device or a pipe does not."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


class OtlpSink(_Draining):
    """Log records for a collector: the decision record is the body, as a map."""

    def __init__(
        self, endpoint: str, *, resource: Resource, queue_max: int, timeout_s: float
    ) -> None:
        self._exporter = OTLPLogExporter(endpoint=endpoint, timeout=timeout_s)
        self._resource = resource
        self._scope = InstrumentationScope("gateway.decisions")
        super().__init__(name="decision-otlp", queue_max=queue_max, linger_s=_LINGER_S)

    def close(self, *, timeout_s: float) -> None:
        super().close(timeout_s=timeout_s)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # theirs has no types

    def _arrived(self, batch: list[_Told]) -> int:
        records = [
            ReadableLogRecord(_log_record(one), self._resource, self._scope) for one in batch
        ]
        done = self._exporter.export(records) is LogRecordExportResult.SUCCESS
        return len(batch) if done else 0


def _log_record(told: _Told) -> LogRecord:
    entry = told.entry
    return LogRecord(
        timestamp=entry.ended_ns,
        observed_timestamp=entry.ended_ns,
        context=_context(entry.trace),
        severity_number=SeverityNumber.WARN if entry.weighty else SeverityNumber.INFO,
        severity_text="warning" if entry.weighty else "info",
        event_name=EVENT_NAME,
        body=told.values,
    )


def _context(trace: TraceContext | None) -> Context:
    if trace is None:
        return Context()
    span = SpanContext(trace.trace_id, trace.span_id, is_remote=False, trace_flags=_SAMPLED)
    return set_span_in_context(NonRecordingSpan(span), Context())
