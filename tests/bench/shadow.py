"""What a candidate costs: CPU of one request's comparison, by its units.

CPU of the thread, not the clock: neighbours on the machine would be measured else.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from gateway.decisions.facts import Facts
from gateway.egress.registry import Key, Label, Registered
from gateway.egress.tally import Tally
from gateway.shadow.observer import Shadow
from policies.snapshot import Snapshot, load
from tests.gateway.shadow.made import (
    EMPLOYEES_READ_NO_DRAFTS,
    Held,
    candidate_of,
    request,
)

REPEATS: Final = 2_000
UNITS: Final = 50
CASES: Final = {"no units": (0, 1), "50 units of one class": (UNITS, 1),
                "50 units of 50 classes": (UNITS, UNITS)}  # fmt: skip


def run(out: Console, rounds: int) -> dict[str, Any]:
    """Print and return microseconds per request."""
    live = load()
    with tempfile.TemporaryDirectory() as folder:
        other = candidate_of(Path(folder) / "candidate", EMPLOYEES_READ_NO_DRAFTS)
    shadows = {"no candidate": None, "agrees": live, "disagrees on all": other}
    table = Table("request", *shadows, "of which per unit")
    figures: dict[str, Any] = {}
    for name, (units, classes) in CASES.items():
        facts = _facts(live, units, classes)
        took = {
            side: _microseconds(Shadow(Held(candidate)), facts, rounds)
            for side, candidate in shadows.items()
        }
        each = f"{took['disagrees on all'] / units:.2f}" if units else "-"
        table.add_row(name, *(f"{one:.2f} us" for one in took.values()), each)
        figures[name] = took
    out.print(table)
    return {"microseconds": figures}


def _facts(live: Snapshot, units: int, classes: int) -> Facts:
    """An employee's request that shows drafts, which the other candidate closes."""
    facts = request(live)
    drafts = _drafts(live)[:classes]
    labels: dict[Key, Label] = {
        ("unit", uuid4()): Label(drafts[number % len(drafts)], "*", "*") for number in range(units)
    }
    tally = Tally()
    tally.showed(frozenset(labels), Registered(live.digest, labels, {}, ()))
    facts.tally = tally
    return facts


def _drafts(live: Snapshot) -> list[int]:
    words = live.vocabulary
    return [one for one in live.grant(["employee"]).plain
            if words.facets_of(one)["readiness"] == "approved"]  # fmt: skip


def _microseconds(shadow: Shadow, facts: Facts, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(REPEATS):
            shadow.observe(facts, route="retrieve", method="POST")
        best = min(best, (time.thread_time_ns() - began) / REPEATS / 1_000)
    return best
