"""One decision on one unit: the compiled table and the guard, beside Casbin on the same rules."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from rich.console import Console
from rich.table import Table

from gateway.egress.guard import denied_of
from gateway.egress.registry import Key, Label, Registered
from policies.decision import SHARED
from policies.kinds import SHAPES, Kind
from policies.oracle import Oracle
from policies.snapshot import Snapshot, load
from policies.subject import Subject
from policies.vocabulary import FACETS

UNITS: Final = 200
PROFILE: Final = "employee"


def run(out: Console, rounds: int) -> dict[str, Any]:
    """Microseconds per unit, each the best of ``rounds``, and how many times Casbin's is that."""
    snapshot = load()
    classes = random.Random(7).sample(range(snapshot.vocabulary.class_count), UNITS)
    casbin, expected = _casbin(snapshot, classes)
    ways: dict[str, Callable[[], Sequence[bool]]] = {
        "Casbin enforce": casbin,
        "grant lookup": _grant(snapshot, classes),
        "guard, labels in memory": _guard(snapshot, classes),
    }
    spent = {}
    for name, way in ways.items():
        if way() != expected:
            raise SystemExit(f"{name} decides otherwise than Casbin: no figure")
        repeat = 1 if way is casbin else 50
        spent[name] = min(_cpu_us(way, repeat) for _ in range(max(rounds, 3))) / UNITS
    table = Table("one unit", "CPU us", "Casbin is slower by")
    for name, micros in spent.items():
        table.add_row(name, f"{micros:.2f}", f"{spent['Casbin enforce'] / micros:,.0f} x")
    out.print(f"{UNITS} units for `{PROFILE}`, {sum(expected)} of them permitted; same verdicts")
    out.print(table)
    return {"units": UNITS, "cpu_us_per_unit": {k: round(v, 3) for k, v in spent.items()}}


def _casbin(
    snapshot: Snapshot, classes: Sequence[int]
) -> tuple[Callable[[], Sequence[bool]], Sequence[bool]]:
    oracle = Oracle(SHAPES[Kind.UNITS], snapshot.table.units.rows)
    facets = [snapshot.vocabulary.facets_of(class_id) for class_id in classes]
    asked = [(PROFILE, *(one[facet] for facet in FACETS), "none") for one in facets]

    def way() -> Sequence[bool]:
        return list(itertools.starmap(oracle.allows, asked))

    return way, way()


def _grant(snapshot: Snapshot, classes: Sequence[int]) -> Callable[[], Sequence[bool]]:
    grant = snapshot.grant([PROFILE])
    return lambda: [grant.permits_class(class_id, consent=False) for class_id in classes]


def _guard(snapshot: Snapshot, classes: Sequence[int]) -> Callable[[], Sequence[bool]]:
    subject = Subject(
        subject_id="bench",
        audience=PROFILE,
        grant=snapshot.grant([PROFILE]),
        tenants=("acme",),
        jurisdictions=("eu",),
        task_scope="",
        purpose="",
        actor="",
    )
    keys: list[Key] = [("unit", UUID(int=number + 1)) for number in range(len(classes))]
    labels = {
        key: Label(class_id, SHARED, SHARED) for key, class_id in zip(keys, classes, strict=True)
    }
    registered = Registered(snapshot.digest, labels, {}, ())

    def way() -> Sequence[bool]:
        denied = denied_of(keys, registered, subject)
        return [key not in denied for key in keys]

    return way


def _cpu_us(way: Callable[[], object], repeat: int) -> float:
    began = time.process_time()
    for _ in range(repeat):
        way()
    return (time.process_time() - began) * 1e6 / repeat
