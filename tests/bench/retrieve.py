"""Retrieval on the sample corpus: real vectors, real query embedder, embedded stores.

The demo's own stage is started in a throw-away folder; no question is embedded twice from
memory, because the service keeps no vectors of questions. Asked through both doors, one
question at a time and four at a time. Questions are asked in groups of one mode, so that
processor time can be told apart by mode.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from deploy.demo.stage import staged
from gateway.settled import settle
from tests.bench.doors import Door, Question, opened
from tests.bench.machine import cpu_seconds
from tests.bench.questions import PEOPLE, QUESTIONS
from tests.services import state_folder

CONCURRENCY: Final = (1, 4)
MODES: Final = {"single": "thread", "multi": "thread", "fallback": "fallback", "none": "fallback"}


@dataclass(slots=True)
class Series:
    """All that was measured of one door, concurrency and mode. Times in ms, CPU in us."""

    rounds: list[list[float]] = field(default_factory=list)
    cpu: list[dict[str, float]] = field(default_factory=list)
    phases: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def figures(self) -> dict[str, Any]:
        """``best`` is the median of the quietest round; CPU is of the cheapest one."""
        times = sorted(time for one in self.rounds for time in one)
        cheapest = min(self.cpu, key=lambda one: sum(one.values()), default={})
        return {
            "n": len(times),
            "p50_ms": round(median(times), 2),
            "p99_ms": round(times[int(len(times) * 0.99)], 2),
            "min_ms": round(times[0], 2),
            "best_p50_ms": round(min(map(median, self.rounds)), 2),
            "cpu_us": {name: round(spent) for name, spent in cheapest.items()},
            "phases_p50_ms": {name: round(median(one), 2) for name, one in self.phases.items()},
        }


Results = Mapping[tuple[str, int, str], Series]


def run(out: Console, rounds: int) -> dict[str, Any]:
    with state_folder() as state:
        results, modes = uvloop.run(_measured(state, rounds))
    out.print(f"{len(QUESTIONS)} questions x {len(PEOPLE)} people, {rounds} rounds; modes: {modes}")
    figures = [
        {"door": door, "concurrency": many, "mode": mode, **series.figures()}
        for (door, many, mode), series in results.items()
    ]
    out.print(_table(figures))
    for one in figures:
        if one["phases_p50_ms"]:
            spent = ", ".join(f"{name} {ms:.1f}" for name, ms in one["phases_p50_ms"].items())
            out.print(f"p50 ms of {one['mode']}, {one['concurrency']} at once: {spent}")
    return {"questions": len(QUESTIONS), "people": PEOPLE, "modes": modes, "figures": figures}


async def _measured(state: Any, rounds: int) -> tuple[Results, dict[str, int]]:
    results: dict[tuple[str, int, str], Series] = defaultdict(Series)
    asked = [Question(who, text) for who in PEOPLE for text in QUESTIONS]
    async with staged(state) as stage, opened(stage, PEOPLE) as (service, gateway):
        modes = [(await service.ask(one)).mode for one in asked]  # warms plans and caches up
        for one in asked[:: len(asked) // 40]:
            await gateway.ask(one)
        groups: dict[str, list[Question]] = defaultdict(list)
        for one, mode in zip(asked, modes, strict=True):
            groups[MODES[mode]].append(one)
        settle()  # as `gateway serve` does
        for _ in range(rounds):
            for name, door in (("service", service), ("gateway", gateway)):
                for many in CONCURRENCY:
                    for mode, questions in sorted(groups.items()):
                        await _round(results[name, many, mode], door, questions, many)
    for name, many in {(name, many): None for name, many, _ in results}:
        parts = [results[name, many, mode] for mode in sorted(groups)]
        together = zip(*(part.rounds for part in parts), strict=True)
        results[name, many, "all"] = Series([list(chain.from_iterable(one)) for one in together])
    return results, dict(Counter(modes))


async def _round(series: Series, door: Door, questions: Sequence[Question], many: int) -> None:
    """Ask all once, ``many`` at a time, in an order that each round shuffles."""
    todo = random.sample(questions, len(questions))
    times: list[float] = []

    async def asker() -> None:
        while todo:
            question = todo.pop()
            began = time.perf_counter()
            reply = await door.ask(question)
            times.append((time.perf_counter() - began) * 1e3)
            for phase, spent in reply.phases.items():
                series.phases[phase].append(spent)

    before = cpu_seconds()
    await asyncio.gather(*(asker() for _ in range(many)))
    after = cpu_seconds()
    series.rounds.append(times)
    series.cpu.append({one: (after[one] - before[one]) * 1e6 / len(questions) for one in after})


def _table(figures: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        *("door", "at once", "mode", "n", "p50 ms", "p99 ms", "min ms", "best p50"),
        *("CPU us: python", "postgres", "qdrant"),
    )
    for one in figures:
        cpu = one["cpu_us"]
        table.add_row(
            *(one["door"], str(one["concurrency"]), one["mode"], str(one["n"])),
            *(f"{one[name]:.1f}" for name in ("p50_ms", "p99_ms", "min_ms", "best_p50_ms")),
            *(f"{cpu[name]:,}" if cpu else "" for name in ("python", "postgres", "qdrant")),
        )
    return table
