"""Starts the workers, starts a dead one again, and ends them all.

Theory
    A worker that dies at once will die again, so it waits longer each time; one that served for a
    while is started at once. At the first start every worker must come up, because what stops
    one then (settings, a store, the policy) stops all.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.workers.channel import StartFailed, Words, framed, words_of

START_S: Final = 120.0
LONG_S: Final = 10.0
"""A worker that lived for longer is started again at once."""
_BACKOFF_S: Final = (0.5, 30.0)
_LOG: Final = logging.getLogger("gateway.workers")


@dataclass(slots=True, eq=False)
class Worker:
    """One place among the workers, and the process that has it now.

    ``port`` is of its second listener; None while it does not serve.
    """

    number: int
    pid: int = 0
    port: int | None = None
    restarts: int = 0
    process: asyncio.subprocess.Process | None = None
    backoff_s: float = _BACKOFF_S[0]
    up: asyncio.Event = field(default_factory=asyncio.Event)
    channel: asyncio.StreamWriter | None = None


class Supervisor:
    """Keeps ``count`` workers alive until ``stop``.

    ``command`` is run with the number of a file descriptor as its last argument; ``order`` is
    what each new worker is sent over it.
    """

    def __init__(self, command: Sequence[str], order: Callable[[], bytes], *, count: int) -> None:
        self.workers = tuple(Worker(number) for number in range(count))
        self._command = tuple(command)
        self._order = order
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def ports(self) -> dict[int, int]:
        """The second listeners of those that serve, by the worker's number."""
        return {one.number: one.port for one in self.workers if one.port is not None}

    @property
    def restarts(self) -> int:
        return sum(one.restarts for one in self.workers)

    async def start(self) -> None:
        """Return when every worker serves. Raises: StartFailed; then none runs."""
        self._tasks = [
            asyncio.create_task(self._keep(one), name=f"worker {one.number}")
            for one in self.workers
        ]
        ready = asyncio.create_task(self._all_up())
        try:
            done, _ = await asyncio.wait(
                [ready, *self._tasks], timeout=START_S, return_when=asyncio.FIRST_COMPLETED
            )
            if ready not in done:
                for ended in done:
                    await ended  # raises
                reason = f"a worker did not come up within {START_S:g} s"
                raise StartFailed("worker_failed", reason, "read the log of the process")
        except StartFailed:
            await self.stop(deadline_s=5.0)
            raise
        finally:
            ready.cancel()

    async def _all_up(self) -> None:
        for one in self.workers:
            await one.up.wait()

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on to every worker."""
        for one in self.workers:
            if one.process is not None and one.process.returncode is None:
                one.process.send_signal(number)

    def tell(self, order: bytes) -> None:
        """Send every worker a further order; one that starts just now gets it, too."""
        for one in self.workers:
            if one.channel is not None:
                one.channel.write(framed(order))

    def drain(self) -> None:
        """Ask every worker to drain, once: a second signal would tell it to hurry."""
        if not self._over.is_set():
            self._over.set()
            self.send(signal.SIGTERM)

    async def stop(self, *, deadline_s: float) -> None:
        """Ask every worker to drain, and return when all have ended; kill after the deadline."""
        self.drain()
        tasks = [task for task in self._tasks if not task.done()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=deadline_s)
            if late:
                _LOG.error("workers: %d did not end within %g s, killed", len(late), deadline_s)
                self.send(signal.SIGKILL)
                await asyncio.wait(late, timeout=10.0)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- one worker -------------------------------------------------------------------------

    async def _keep(self, worker: Worker) -> None:
        """Run one worker again and again. Raises: StartFailed before it served once."""
        first = True
        while not self._over.is_set():
            began = time.monotonic()
            try:
                await self._run(worker)
            except StartFailed as failed:
                if first:
                    raise
                _LOG.error("worker %d cannot start: %s", worker.number, failed)
            served, first = worker.up.is_set() or not first, False
            if self._over.is_set():
                return
            if not served:
                code = worker.process.returncode if worker.process else None
                reason = f"a worker ended before it served ({_cause(code)})"
                raise StartFailed("worker_failed", reason, "read the log of the process")
            await self._pause(worker, lived_s=time.monotonic() - began)
            worker.restarts += 1

    async def _run(self, worker: Worker) -> None:
        """Start one process and return when it has ended. Raises: StartFailed."""
        ours, theirs = socket.socketpair()
        words, channel = await words_of(ours)
        # its order and its place in one step: what is told from here on comes after the order
        channel.write(framed(self._order()))
        worker.channel = channel
        worker.process = None
        try:
            with theirs:
                worker.process = await asyncio.create_subprocess_exec(
                    *self._command,
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for the supervisor, which drains
                )
            process = worker.process
            worker.pid = process.pid
            if self._over.is_set():
                process.terminate()
            await self._served(worker, words)
            code = await process.wait()
        finally:
            worker.port = worker.channel = None
            channel.close()
            if worker.process is not None and worker.process.returncode is None:
                worker.process.kill()
                await worker.process.wait()
        if not self._over.is_set():
            _LOG.error("worker %d ended (%s)", worker.number, _cause(code))

    async def _served(self, worker: Worker, words: Words) -> None:
        try:
            worker.port = await words.ready()
        except (EOFError, OSError):  # it is dead: how, its exit code says
            return
        worker.up.set()
        if worker.restarts:
            _LOG.info("worker %d serves again, as process %d", worker.number, worker.pid)

    async def _pause(self, worker: Worker, *, lived_s: float) -> None:
        if lived_s > LONG_S:
            worker.backoff_s = _BACKOFF_S[0]
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), worker.backoff_s)
        worker.backoff_s = min(worker.backoff_s * 2, _BACKOFF_S[1])


def command(module: str) -> tuple[str, ...]:
    """The command that runs a module of ours as a worker."""
    return (sys.executable, "-m", module)


def _cause(code: int | None) -> str:
    if code is None:
        return "unknown"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
