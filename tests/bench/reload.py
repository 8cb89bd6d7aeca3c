"""A new policy of 10,000 rules and 200 profiles, activated while the event loop serves.

The gateway runs here, on stores of its own; the release is staged and flipped by another
process, as an operator would do it. A task counts the loop's turns: the time between two of
them is how long anybody had to wait. It is told apart by what the loop's thread computed
itself (processor time: ours to answer for) and what passed (also when the machine gave the
processor to somebody else: see the baseline beside it).

Worst case on purpose: every profile is in use before, so that 200 grants are made anew and 200
old ones are freed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from gateway.compose.running import Running, running
from gateway.settings.reading import load
from gateway.settled import settle
from policies.faults import Faults
from policies.loader import parse_files
from policies.release import contents_of
from policies.snapshot import compiled
from retrieval.schema.migrate import migrate
from tests import large_policy
from tests.gateway.cli.made import clean, environment
from tests.services import cluster_of, embedded_pair, fresh_database

BASELINE_S: Final = 10.0
RECEIVING_S: Final = 1.0
AFTER_S: Final = 5.0
KEPT_S: Final = 0.0003
WAIT_SECONDS: Final = 600.0


@dataclass(slots=True)
class Turns:
    """The loop's longest turns: (when it ended, seconds that passed, seconds it computed)."""

    kept: list[tuple[float, float, float]] = field(default_factory=list)
    over: bool = False

    async def count(self) -> None:
        """Turn the loop as fast as it goes, until it is over."""
        passed, computed = time.perf_counter(), time.thread_time()
        while not self.over:
            await asyncio.sleep(0)
            now, own = time.perf_counter(), time.thread_time()
            if now - passed > KEPT_S:
                self.kept.append((now, now - passed, own - computed))
            passed, computed = now, own

    def between(self, start: float, end: float) -> dict[str, Any]:
        """The longest ones of a span, in ms, and how many passed one."""
        inside = [one for one in self.kept if start <= one[0] <= end]
        passed = sorted((one[1] * 1e3 for one in inside), reverse=True)
        computed = sorted((one[2] * 1e3 for one in inside), reverse=True)
        return {
            "seconds": round(end - start, 2),
            "longest_ms": [round(one, 2) for one in passed[:3]],
            "over_1_ms": sum(one > 1 for one in passed),
            "longest_computed_ms": [round(one, 2) for one in computed[:3]],
            "computed_over_1_ms": sum(one > 1 for one in computed),
        }


def run(out: Console, rounds: int) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-reload-")))
        pair = stack.enter_context(embedded_pair())
        database = stack.enter_context(fresh_database(cluster_of(pair)))
        policies = [
            large_policy.write(folder / f"policy-{number}", large_policy.contents(note=f"{number}"))
            for number in range(1, rounds + 1)
        ]
        env = environment(pair, database, folder)
        with_words = contents_of(policies[0])  # the database has to know all profiles before
        migrate(database.url, database.secret, compiled(parse_files(with_words, Faults()))[0])
        figures = uvloop.run(_measured(out, env, policies))
    out.print(_table(figures))
    return {"profiles": large_policy.PROFILES, "rules": large_policy.RULES, "rounds": figures}


async def _measured(
    out: Console, env: dict[str, str], policies: Sequence[Path]
) -> list[dict[str, Any]]:
    found = []
    async with running(load(None, env), embedded=False) as gateway:
        settle()
        for folder in policies:
            for profile in gateway.snapshot.vocabulary.profiles:
                gateway.snapshot.grant([profile])
            found.append(await _round(gateway, env, folder))
            out.print(f"{folder.name}: {found[-1]['built']}, {found[-1]['staged_to_swapped_s']} s")
    return found


async def _round(gateway: Running, env: dict[str, str], folder: Path) -> dict[str, Any]:
    turns, before = Turns(), gateway.snapshot.digest
    with _pressing(env, folder) as process:
        assert process.stdin is not None
        await asyncio.sleep(BASELINE_S)  # it starts, and reads the policy
        counting = asyncio.create_task(turns.count())
        start = time.perf_counter()
        await asyncio.sleep(3 * BASELINE_S)
        staged = time.perf_counter()
        process.stdin.write(b"now\n")
        while not gateway.snapshots.prepared:
            assert time.perf_counter() < staged + WAIT_SECONDS, "the release never came"
            await asyncio.sleep(0.01)
        prepared = time.perf_counter()
        while gateway.snapshot.digest == before:
            assert time.perf_counter() < staged + WAIT_SECONDS, "nobody flipped"
            await asyncio.sleep(0.01)
        swapped = time.perf_counter()
        await asyncio.sleep(AFTER_S)
        end = time.perf_counter()
        turns.over = True
        await counting
    built = gateway.watcher.counts.last
    assert built is not None
    return {
        "built": {
            "accept_s": round(built.accept_s, 2),
            "compile_s": round(built.compile_s, 2),
            "quotient_s": round(built.prove_s, 2),
            "questions": built.questions,
            "cpu_s": round(built.cpu_s, 2),
        },
        "staged_to_swapped_s": round(swapped - staged, 1),
        "baseline": turns.between(start, staged),
        "building": turns.between(staged, prepared - RECEIVING_S),
        "receiving": turns.between(prepared - RECEIVING_S, prepared),
        "swapping": turns.between(prepared, end),
    }


@contextmanager
def _pressing(env: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that stages a folder, waits for us and flips."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.reload_press", str(folder)],
        env=clean() | env,
        stdin=subprocess.PIPE,
        bufsize=0,
    ) as process:
        yield process


def _table(figures: Sequence[dict[str, Any]]) -> Table:
    table = Table("round", "span", "s", "longest ms", "> 1 ms", "longest computed ms", "> 1 ms")
    for number, one in enumerate(figures, 1):
        for span in ("baseline", "building", "receiving", "swapping"):
            told = one[span]
            table.add_row(
                f"{number}",
                span,
                f"{told['seconds']}",
                " ".join(map(str, told["longest_ms"])),
                f"{told['over_1_ms']}",
                " ".join(map(str, told["longest_computed_ms"])),
                f"{told['computed_over_1_ms']}",
            )
    return table
