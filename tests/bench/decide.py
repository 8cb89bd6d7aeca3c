"""One decision on one unit: our table and guard beside Casbin and three other engines.

All get the same rows (the shipped unit policy) and the same requests. An engine's verdicts
must be Casbin's before it is measured; one that decides otherwise is told, not timed. The
rounds alternate between the engines, so that a busy moment of the machine meets all of them,
and processor time is counted, not the clock on the wall.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import casbin
from rich.console import Console
from rich.table import Table

from gateway.egress.guard import denied_of
from gateway.egress.registry import Key, Label, Registered
from policies.decision import SHARED
from policies.kinds import SHAPES, Kind
from policies.oracle import meets
from policies.snapshot import Snapshot, load
from policies.subject import Subject
from policies.vocabulary import FACETS
from tests.bench.decide_languages import LANGUAGES
from tests.bench.decide_peers import PYTHON, PeerFailed, peers

UNITS: Final = 200
PROFILE: Final = "employee"
BAR: Final = 300
"""How many times faster than one enforce our two ways must be (issue 3)."""
ENFORCE, LOOKUP, GUARD = "pycasbin enforce", "our look-up", "our guard, labels in memory"
_SPAN_US: Final = 60_000
"""Processor time of one measurement: long against the clock's own steps."""

Micros = Callable[[int], float]
"""Processor time in us per unit, all units decided that often."""


def run(out: Console, rounds: int) -> dict[str, Any]:
    """Medians over the rounds, and how many times faster than one enforce each engine is."""
    snapshot = load()
    classes = random.Random(7).sample(range(snapshot.vocabulary.class_count), UNITS)
    facets = [snapshot.vocabulary.facets_of(class_id) for class_id in classes]
    requests = [(PROFILE, *(one[facet] for facet in FACETS), "none") for one in facets]
    enforce = _enforce(snapshot, requests)
    expected = enforce()
    ways: dict[str, Micros] = {ENFORCE: partial(_micros, enforce)}
    left_out: dict[str, str] = {}
    lookup, guard = _lookup(snapshot, classes), _guard(snapshot, classes)
    for name, verdicts, timed in (
        (LOOKUP, lookup(), lookup),
        (GUARD, [key not in guard() for key in _keys()], guard),
    ):
        if verdicts != expected:
            raise SystemExit(f"{name} decides otherwise than Casbin: no figure")
        ways[name] = partial(_micros, timed)
    with peers() as others:
        if others is None:
            left_out = dict.fromkeys(LANGUAGES, f"no {PYTHON.parent.parent.name}: `make bench`")
        else:
            for engine in LANGUAGES:
                try:
                    said = others.verdicts(engine, snapshot.table.units.rows, requests)
                except PeerFailed as failed:
                    left_out[engine] = str(failed)
                    continue
                wrong = [request for request, *two in zip(requests, said, expected, strict=True)
                         if two[0] != two[1]]  # fmt: skip
                if wrong:
                    left_out[engine] = f"disagrees with Casbin on {len(wrong)}: {wrong[0]}"
                else:
                    ways[engine] = partial(others.micros, engine)
        spent = _alternated(ways, max(rounds, 3))
        versions = dict(others.versions) if others is not None else {}
    figures = {
        "rules": len(snapshot.table.units.rows),
        "units": UNITS,
        "permitted": sum(expected),
        "profile": PROFILE,
        "rounds": max(rounds, 3),
        "versions": versions,
        "cpu_us_per_unit": spent,
        "left_out": left_out,
        **_compared(spent),
    }
    _show(out, figures)
    return figures


def _alternated(ways: Mapping[str, Micros], rounds: int) -> dict[str, list[float]]:
    """Each engine measured once a round; how often it repeats is found out beforehand."""
    repeats = {name: max(1, int(_SPAN_US / (way(1) * UNITS))) for name, way in ways.items()}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            spent[name].append(round(way(repeats[name]), 4))
    return spent


def _compared(spent: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    medians = {name: statistics.median(values) for name, values in spent.items()}
    faster = {name: round(medians[ENFORCE] / median, 1) for name, median in medians.items()}
    return {
        "median_cpu_us": {name: round(median, 4) for name, median in medians.items()},
        "times_faster_than_enforce": faster,
        "bar": BAR,
        "bar_met": all(faster[name] >= BAR for name in (LOOKUP, GUARD)),
    }


def _show(out: Console, figures: Mapping[str, Any]) -> None:
    table = Table("one unit", "CPU us, median", "lowest - highest", "faster than one enforce")
    for name, median in sorted(figures["median_cpu_us"].items(), key=lambda one: -one[1]):
        values = figures["cpu_us_per_unit"][name]
        table.add_row(
            figures["versions"].get(name, name),
            f"{median:.3f}",
            f"{min(values):.3f} - {max(values):.3f}",
            f"{figures['times_faster_than_enforce'][name]:,.1f} x",
        )
    out.print(
        f"{figures['rules']} rules, {UNITS} units for `{PROFILE}`, {figures['permitted']} of them"
        f" permitted; equal verdicts checked first; {figures['rounds']} alternated rounds"
    )
    out.print(table)
    for name, why in figures["left_out"].items():
        out.print(f"not timed: {name}: {why}", markup=False)
    verdict = "met" if figures["bar_met"] else "NOT met"
    out.print(f"bar: ours at least {BAR} times faster than one enforce: {verdict}")


def _enforce(snapshot: Snapshot, requests: Sequence[Sequence[str]]) -> Callable[[], list[bool]]:
    """pycasbin as it comes: our oracle keeps a matcher parsed, which is faster."""
    enforcer = casbin.Enforcer(casbin.Enforcer.new_model(text=SHAPES[Kind.UNITS].model_text))
    enforcer.add_function("meets", meets)
    for row in snapshot.table.units.rows:
        cells = ["|".join(sorted(cell)) for cell in row.cells]
        enforcer.model.add_policy("p", "p", [row.id, *cells, row.effect.value])
    return lambda: list(itertools.starmap(enforcer.enforce, requests))


def _lookup(snapshot: Snapshot, classes: Sequence[int]) -> Callable[[], list[bool]]:
    grant = snapshot.grant([PROFILE])
    return lambda: [grant.permits_class(class_id, consent=False) for class_id in classes]


def _keys() -> list[Key]:
    return [("unit", UUID(int=number + 1)) for number in range(UNITS)]


def _guard(snapshot: Snapshot, classes: Sequence[int]) -> Callable[[], frozenset[Key]]:
    """The guard's verdict on one answer: the denied ids, by labels that were read before."""
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
    keys = _keys()
    labels = {
        key: Label(class_id, SHARED, SHARED) for key, class_id in zip(keys, classes, strict=True)
    }
    registered = Registered(snapshot.digest, labels, {}, ())
    return lambda: denied_of(keys, registered, subject)


def _micros(way: Callable[[], object], repeat: int) -> float:
    began = time.process_time()
    for _ in range(repeat):
        way()
    return (time.process_time() - began) * 1e6 / repeat / UNITS
