"""Counts of the process, kept in plain dicts and read by two doors.

Theory
    A histogram of the SDK costs about 30 us a request in place, a dict entry under one.
    So a request adds to a dict here; the OTLP reader fetches through observable callbacks
    and Prometheus through ``text``. Label values are words of ours (route ids, audiences,
    codes), so the number of series is bounded by the policy.

Everything is touched on the event loop only, except by the OTLP reader's thread, which copies.
What that thread cannot copy because the loop changes it meanwhile is looked at again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from gateway.telemetry.fields import RequestRecord, method_word

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)

_Key = tuple[str, ...]
Levels = Callable[[], Iterable[tuple[_Key, float]]]
"""Reads levels by the values of their labels."""
_LOOKS_MAX: Final = 100
_REQUEST: Final = ("method", "route", "audience", "decision", "status", "code")
_REASON: Final = ("reason",)
_DURATION: Final = ("route",)
_EVENT: Final = ("kind", "layer", "action")


class Counters:
    """Requests, durations, refused callers and security events since the start, plus gauges that
    are read on demand."""

    def __init__(self) -> None:
        self.requests: dict[_Key, int] = {}
        self.durations: dict[_Key, list[float]] = {}
        self.refusals: dict[_Key, int] = {}
        self.events: dict[_Key, int] = {}
        self._levels: dict[str, tuple[str, tuple[str, ...], Levels]] = {}
        self._families: dict[str, tuple[str, tuple[str, ...], Mapping[_Key, int]]] = {}
        self._meter: Meter | None = None

    def family(
        self, name: str, help_text: str, names: tuple[str, ...], rows: Mapping[_Key, int]
    ) -> None:
        """Publish counts that somebody else keeps as ``name``, labels ``names``, in both doors."""
        self._families[name] = (help_text, names, rows)
        if self._meter is not None:
            _observe(self._meter, _dotted(name), names, rows)

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Publish ``read()`` as ``name``. ``read`` must neither block nor raise."""
        self.levels(name, help_text, (), lambda: [((), read())])

    def levels(self, name: str, help_text: str, names: tuple[str, ...], read: Levels) -> None:
        """Publish what ``read()`` gives as ``name``, labels ``names``, in both doors.

        ``read`` must neither block nor raise; whatever it goes through may change meanwhile.
        """
        self._levels[name] = (help_text, names, read)
        if self._meter is not None:
            _watch(self._meter, _dotted(name), names, read)

    def add(self, record: RequestRecord) -> None:
        """Count one request. Cost: two dict look-ups and a bisection, under a microsecond."""
        key = (
            method_word(record.method),
            record.route,
            record.audience,
            record.decision,
            str(record.status),
            record.code,
        )
        self.requests[key] = self.requests.get(key, 0) + 1
        if record.reason:
            why = (record.reason,)
            self.refusals[why] = self.refusals.get(why, 0) + 1
        seconds = record.duration_ns / 1e9
        row = self.durations.get((record.route,))
        if row is None:
            row = self.durations[(record.route,)] = [0.0] * (len(BUCKETS_S) + 2)
        row[bisect_left(BUCKETS_S, seconds)] += 1
        row[-1] += seconds
        if record.event is not None:
            event = record.event
            mark = (event.kind.value, event.layer, event.action.value)
            self.events[mark] = self.events.get(mark, 0) + 1

    def text(self) -> str:
        """The counts in Prometheus' text exposition format, version 0.0.4."""
        lines: list[str] = []
        _counter(lines, "gateway_requests_total", "Finished requests.", _REQUEST, self.requests)
        _counter(
            lines, "gateway_refusals_total", "Callers refused, by why.", _REASON, self.refusals
        )
        _counter(lines, "gateway_security_events_total", "Journaled.", _EVENT, self.events)
        for family, (help_text, names, rows) in sorted(self._families.items()):
            _counter(lines, family, help_text, names, rows)
        name = "gateway_request_duration_seconds"
        lines += [f"# HELP {name} From first byte in to last byte out.", f"# TYPE {name} histogram"]
        for key, row in sorted(self.durations.items()):
            labels, running = _labels(_DURATION, key), 0.0
            for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), row[:-1], strict=True):
                running += count
                lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {running:g}')
            lines.append(f"{name}_sum{{{labels}}} {row[-1]!r}")
            lines.append(f"{name}_count{{{labels}}} {running:g}")
        for level, (help_text, names, read) in sorted(self._levels.items()):
            lines += [f"# HELP {level} {help_text}", f"# TYPE {level} gauge"]
            for key, value in sorted(read()):
                labels = f"{{{_labels(names, key)}}}" if names else ""
                lines.append(f"{level}{labels} {value:g}")
        return "\n".join(lines) + "\n"

    def export(self, meter: Meter) -> None:
        """Let the meter's reader fetch the same counts."""

        def durations(_: CallbackOptions) -> Iterable[Observation]:
            for (route,), row in list(self.durations.items()):
                yield Observation(row[-1], {"route": route})

        self._meter = meter
        _observe(meter, "gateway.requests", _REQUEST, self.requests, "{request}")
        _observe(meter, "gateway.refusals", _REASON, self.refusals, "{request}")
        _observe(meter, "gateway.security_events", _EVENT, self.events, "{event}")
        meter.create_observable_counter("gateway.request.time", [durations], "s")
        for name, (_, names, rows) in self._families.items():
            _observe(meter, _dotted(name), names, rows)
        for name, (_, names, read) in self._levels.items():
            _watch(meter, _dotted(name), names, read)


def _observe(
    meter: Meter, name: str, names: tuple[str, ...], rows: Mapping[_Key, int], unit: str = ""
) -> None:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        for key, count in list(rows.items()):
            yield Observation(count, dict(zip(names, key, strict=True)))

    meter.create_observable_counter(name, [read], unit)


def _watch(meter: Meter, name: str, names: tuple[str, ...], levels: Levels) -> None:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        for _look in range(_LOOKS_MAX):
            try:
                found = list(levels())
            except RuntimeError:  # the loop changed a set under us, as for `asyncio.all_tasks`
                continue
            return [Observation(value, dict(zip(names, key, strict=True))) for key, value in found]
        return []

    meter.create_observable_gauge(name, [read])


def _dotted(name: str) -> str:
    """What a metric is called where its sort says that it is a total."""
    return name.removesuffix("_total").replace("_", ".")


def _counter(
    lines: list[str], name: str, help_text: str, names: tuple[str, ...], rows: Mapping[_Key, int]
) -> None:
    lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter"]
    for key, count in sorted(rows.items()):
        lines.append(f"{name}{{{_labels(names, key)}}} {count}")


def _labels(names: tuple[str, ...], values: _Key) -> str:
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
