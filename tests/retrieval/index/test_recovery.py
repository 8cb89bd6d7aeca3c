"""The engine killed under the worker: nothing acknowledged is lost, the rest arrives later."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.errors import IndexUnavailable
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, dsn_for
from tests.retrieval.index.collections import everything
from tests.retrieval.truth import Record, Unit
from tests.services import Database

EMBEDDER = HashingEmbedder(16)
BOUND_S = 20


class Engine:
    """A sidecar of this test's own, to be killed and started again over the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "retrieval.embedded.qdrant_sidecar"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        settings = {
            "folder": str(self._folder),
            "host": "127.0.0.1",
            "port": self.port,
            "api_key": "k",
        }
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        self._process.stdin.flush()
        self.port = json.loads(self._process.stdout.readline())["port"]

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        running = Engine(Path(folder))
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def recording(database: Database, snapshot: Snapshot) -> Iterator[Record]:
    with Record(database.url, snapshot.vocabulary) as record:
        yield record


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await holds():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.02)


def units(first: int, count: int) -> list[Unit]:
    return [Unit(UUID(int=n), 3, f"unit {n}", "words") for n in range(first, first + count)]


def test_running_worker_survives_a_killed_engine(
    engine: Engine, database: Database, snapshot: Snapshot
) -> None:
    """Points acknowledged before SIGKILL are there after it; changes made meanwhile follow."""
    conninfo = dsn_for(INDEX, database.url, database.secret)

    async def run(record: Record) -> None:
        index = QdrantIndex(f"http://127.0.0.1:{engine.port}", "k", "units", 16)
        worker = OutboxWorker(conninfo, index, EMBEDDER)
        running = asyncio.create_task(worker.run())

        async def idle() -> bool:
            return record.pending() == 0

        async def failing() -> bool:
            return (await worker.lag()).last_failure != ""

        record.put(units(1, 30))
        worker.wake()
        await until(idle)
        engine.kill()
        record.put(units(31, 5))
        await until(failing)
        with pytest.raises(IndexUnavailable):
            await everything(index)
        assert record.pending() > 0
        engine.start()
        assert len(await everything(index)) >= 30
        await until(idle)
        assert len(await everything(index)) == 35
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await index.close()

    with recording(database, snapshot) as record:
        asyncio.run(run(record))
