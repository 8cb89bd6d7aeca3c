"""Live numbers of a policy change, with 100,000 live units: the question, and the whole command.

The edit is one line of the default policy (customers read what partners do). The gateway runs
in this process on embedded stores; the command runs in one of its own, as a reviewer starts it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import UUID

import httpx
import psycopg
from rich.console import Console
from rich.table import Table

from policies.review.live import classes_of
from policies.review.reading import read
from policies.snapshot import DEFAULT_FOLDER, Snapshot
from retrieval.embedded import Embedded
from retrieval.schema.migrate import migrate
from tests.gateway.admin.asking import Operators, explain, live, operator
from tests.gateway.cli.made import ROOT, clean, environment
from tests.gateway.tokens import Issuers
from tests.services import Database, cluster_of, embedded_pair, fresh_database
from tests.system.composed import composed

UNITS: Final = 100_000
EDIT: Final = (
    "p, U-CUS-1, customer, public, published",
    "p, U-CUS-1, customer, public|partner, published",
)
TENANTS: Final = ("*", "acme", "globex", "initech")


def run(out: Console, rounds: int) -> dict[str, Any]:
    with (
        embedded_pair() as pair,
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        fresh_database(cluster_of(pair)) as database,
    ):
        figures = asyncio.run(_measured(pair, database, Path(scratch), max(3, rounds)))
    table = Table("what", "median ms", "slowest ms", title=f"{UNITS} live units")
    for name, times in figures.items():
        table.add_row(name, f"{median(times):.1f}", f"{max(times):.1f}")
    out.print(table)
    return {
        "units": UNITS,
        "figures": {
            name: {"p50_ms": round(median(times), 1), "max_ms": round(max(times), 1)}
            for name, times in figures.items()
        },
    }


async def _measured(
    pair: Embedded, database: Database, scratch: Path, rounds: int
) -> dict[str, list[float]]:
    old = read(DEFAULT_FOLDER)
    migrate(database.url, database.secret, old.snapshot)
    _fill(database.url, old.snapshot)
    new = read(_edited(scratch))
    (change,) = classes_of(old, new)
    asked = {"profile": change.profile, "gained": change.gained, "lost": change.lost}
    every = {"profile": "all", "gained": tuple(range(old.snapshot.vocabulary.class_count))}
    issuers = Issuers()
    env = environment(pair, database, scratch)
    figures: dict[str, list[float]] = {}
    async with composed(env, issuers, scratch) as world:
        operators = Operators(world)
        token = operator(issuers, "policy-reviewer")

        async def timed(name: str, ask: Callable[[], Awaitable[Any]], times: int) -> None:
            await ask()
            figures[name] = [await _time(ask) for _ in range(times)]

        ask = partial(operators.live, token)
        for mode in ("bucketed", "counts", "ids"):
            await timed(f"question, {mode}, one line", partial(ask, live(mode, asked)), 20)
        await timed("question, ids, every class", partial(ask, live("ids", every)), 10)
        unit = explain("unit/17", "partner", tenants=["acme"])
        await timed("question, explain", partial(operators.explain, token, unit), 20)
        file = scratch / "token"
        file.write_text(token)
        for mode in ("none", "counts", "ids"):
            name = f"gateway policy diff --live {mode}"
            figures[name], figures[f"{name}, processor"] = [], []
            for _ in range(rounds):
                started = time.perf_counter()
                spent = await _command(env, scratch, file, mode, str(new.folder))
                figures[name].append((time.perf_counter() - started) * 1_000)
                figures[f"{name}, processor"].append(spent)
    return figures


async def _time(ask: Callable[[], Awaitable[httpx.Response]]) -> float:
    started = time.perf_counter()
    reply = await ask()
    assert reply.status_code == 200, reply.text
    return (time.perf_counter() - started) * 1_000


async def _command(env: dict[str, str], scratch: Path, token: Path, mode: str, new: str) -> float:
    """Its processor time in ms: on a busy machine that is what a quiet one would take, at most."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = ["-m", "gateway", "policy", "diff", str(DEFAULT_FOLDER), new, "--live", mode]
    if mode != "none":
        arguments += ["--reason", "bench", "--token-file", str(token)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={k: v for k, v in (clean() | env).items() if k != "CI"},
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 20, os.fspath(scratch)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent * 1_000


def _edited(scratch: Path) -> Path:
    folder = scratch / "edited"
    shutil.copytree(DEFAULT_FOLDER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    file = folder / "rules" / "units.csv"
    text = file.read_text()
    assert EDIT[0] in text
    file.write_text(text.replace(*EDIT))
    return folder


def _fill(url: str, snapshot: Snapshot) -> None:
    """Units in turn of every class and tenant. Triggers are off: class ids are written as such."""
    count = snapshot.vocabulary.class_count
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("set session_replication_role = replica")
        with admin.transaction(), admin.cursor() as cursor:
            columns = "id, canonical_address, title, class_id, tenant, jurisdiction"
            with cursor.copy(
                f"copy brain.unit ({columns}, current_revision, content_hash) from stdin"
            ) as rows:
                for number in range(UNITS):
                    tenant = TENANTS[number // count % len(TENANTS)]
                    rows.write_row(
                        (UUID(int=number * 7919 + 1), f"unit/{number}", f"Unit {number}",
                         number % count, tenant, "*", 1, "h" * 64)
                    )  # fmt: skip
        admin.execute("vacuum analyze brain.unit")
