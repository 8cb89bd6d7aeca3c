"""Levels with labels: the same in both doors, while what they are read from changes.

Provenance: issue 4 part 3 (breakers, health, pools) and part 7 (operations).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from gateway.telemetry.counters import Counters


def points(counters: Counters) -> dict[str, list[Any]]:
    """What a collector gets, by name."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    counters.export(meters.get_meter("test"))
    data: Any = reader.get_metrics_data()
    meters.shutdown()
    assert data is not None
    return {
        metric.name: [(dict(one.attributes), one.value) for one in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_level_is_told_to_prometheus_and_to_a_collector() -> None:
    """Published before the collector is there or after it; a gauge is a level without labels."""
    counters = Counters()
    counters.gauge("gateway_things", "Things.", lambda: 3)
    counters.levels(
        "gateway_parts", "Parts.", ("of", "state"), lambda: [(("b", "x"), 1), (("a", 'q"'), 0.5)]
    )
    text = counters.text()
    assert "# TYPE gateway_things gauge\ngateway_things 3\n" in text
    assert (
        "# HELP gateway_parts Parts.\n# TYPE gateway_parts gauge\n"
        'gateway_parts{of="a",state="q\\""} 0.5\ngateway_parts{of="b",state="x"} 1\n'
    ) in text
    found = points(counters)
    assert found["gateway.things"] == [({}, 3)]
    assert found["gateway.parts"] == [
        ({"of": "b", "state": "x"}, 1),
        ({"of": "a", "state": 'q"'}, 0.5),
    ]


def test_a_set_that_changes_under_the_reader_is_looked_at_again() -> None:
    """The collector's thread goes through what the loop changes: it neither fails nor is wrong."""
    times = iter(range(3))

    def read() -> Iterable[tuple[tuple[str, ...], float]]:
        if next(times) < 2:
            raise RuntimeError("Set changed size during iteration")
        return [((), 7.0)]

    counters = Counters()
    counters.levels("gateway_things", "Things.", (), read)
    assert points(counters)["gateway.things"] == [({}, 7)]
