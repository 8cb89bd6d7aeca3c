"""What the decision log costs a request: processor time of the loop's thread, and of the sink's.

Requests differ in whether their record is written and in how many units they showed; the sink is
a real file. Bars of our own: 15 us left out, 60 us written.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from gateway.decisions.log import DecisionLog
from gateway.decisions.redaction import Redaction
from gateway.decisions.sinks import FileSink
from gateway.telemetry.fields import RequestRecord
from policies.snapshot import Snapshot, load
from tests.gateway.decisions.made import facts, finished, tally

REPEATS: Final = 2_000
BAR_US: Final = {"left out": 15.0, "written": 60.0}
CLASSES: Final = 8
HASHED: Final = Redaction(mask=["request_id", "claims", "issuer"], drop=["trace_id"], key="key")
CASES: Final = (
    ("left out by the ratio", "left out", 10, Redaction(), 0.0),
    ("written, no units", "written", 0, Redaction(), 1.0),
    ("written, 10 units of 8 classes", "written", 10, Redaction(), 1.0),
    ("written, 50 units of 8 classes", "written", 50, Redaction(), 1.0),
    ("the same, 3 fields hashed, 1 dropped", "written", 50, HASHED, 1.0),
)


def run(out: Console, rounds: int) -> dict[str, Any]:
    """Print and return microseconds per request, the best of the rounds."""
    snapshot = load()
    table = Table("request", "loop's thread", "bar", "all threads")
    figures: dict[str, Any] = {}
    for name, bar, units, redaction, ratio in CASES:
        records = _records(snapshot, units)
        took = [_microseconds(records, redaction, ratio) for _ in range(rounds)]
        here, everywhere = (min(column) for column in zip(*took, strict=True))
        figures[name] = {"loop_us": here, "bar_us": BAR_US[bar], "all_us": everywhere}
        table.add_row(name, f"{here:.1f} us", f"{BAR_US[bar]:.0f} us", f"{everywhere:.1f} us")
    out.print(table)
    return {"microseconds": figures}


def _records(snapshot: Snapshot, units: int) -> list[RequestRecord]:
    """An agent's requests, each with an id of its own."""
    shown = [number % CLASSES for number in range(units)]
    one = finished(facts(snapshot, tally=tally(snapshot, shown)))
    return [replace(one, request_id=secrets.token_hex(16)) for _ in range(REPEATS)]


def _microseconds(
    records: list[RequestRecord], redaction: Redaction, ratio: float
) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        sink = FileSink(Path(folder) / "decisions.jsonl", queue_max=REPEATS)
        log = DecisionLog([sink], redaction=redaction, ratio=ratio, per_second=10**9)
        everywhere, here = time.process_time_ns(), time.thread_time_ns()
        for record in records:
            log.add(record)
        here = time.thread_time_ns() - here
        sink.flush(timeout_s=60)
        everywhere = time.process_time_ns() - everywhere
        sink.close(timeout_s=60)
    return here / len(records) / 1_000, everywhere / len(records) / 1_000
