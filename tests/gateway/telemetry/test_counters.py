"""Counts in plain dicts, as Prometheus text and as OTLP observations."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from gateway.telemetry.counters import Counters
from tests.gateway.journal.made import event
from tests.gateway.telemetry.made import SAMPLED, request

_LINE = re.compile(
    r'(# (HELP|TYPE) [a-z_]+ .*|[a-z_]+(\{[a-z_]+="([^"\\\n]|\\["\\n])*"'
    r'(,[a-z_]+="([^"\\\n]|\\["\\n])*")*\})? [0-9.e+-]+)'
)


@given(st.lists(st.text(max_size=20), max_size=8))
def test_every_line_has_the_form_of_the_format(routes: list[str]) -> None:
    """Prometheus text format 0.0.4: a label value can hold anything, escaped."""
    counters = Counters()
    for route in routes:
        counters.add(request(route=route, event=event()))
    counters.gauge("gateway_up", "Always one.", lambda: 1)
    text = counters.text()
    assert text.endswith("\n")
    assert [one for one in text[:-1].split("\n") if not _LINE.fullmatch(one)] == []


def test_histogram_is_cumulative_and_counts_everything() -> None:
    """Bucket bounds are inclusive; +Inf equals the count."""
    counters = Counters()
    for milliseconds in (1, 5, 5, 700, 60_000):
        counters.add(request(started_ns=0, ended_ns=milliseconds * 1_000_000))
    text = counters.text()
    name = 'gateway_request_duration_seconds_bucket{route="retrieve",le='
    for bound, count in (("0.001", 1), ("0.005", 3), ("1.0", 4), ("30.0", 4), ("+Inf", 5)):
        assert f'{name}"{bound}"}} {count}\n' in text
    assert 'gateway_request_duration_seconds_count{route="retrieve"} 5\n' in text
    assert 'gateway_request_duration_seconds_sum{route="retrieve"} 60.711\n' in text


def test_security_events_are_counted_by_kind_layer_and_action() -> None:
    """What an alert is written on; never mixed with anything of quality."""
    counters = Counters()
    counters.add(request(SAMPLED, event()))
    expected = (
        'gateway_security_events_total{kind="wrong_audience_result",layer="vector_index",'
        'action="withheld"} 1\n'
    )
    assert expected in counters.text()


def test_reader_of_the_sdk_sees_the_same_counts() -> None:
    """Observable callbacks read the dicts: no histogram of the SDK on the path."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    counters = Counters()
    counters.export(meters.get_meter("test"))
    counters.add(request())
    counters.add(request())
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: [point.value for point in metric.data.data_points]  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert points["gateway.requests"] == [2]
    assert points["gateway.request.time"] == [0.01]
    meters.shutdown()
