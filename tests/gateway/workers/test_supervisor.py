"""Workers that are started, started again, and ended; with processes that do as they are told.

Provenance: issue 4, point 7.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.workers.channel import StartFailed
from gateway.workers.supervisor import Supervisor, command
from retrieval.embedded.processes import command_of

pytestmark = pytest.mark.timeout(120)
WORKER = command("tests.gateway.workers.doomed")


@asynccontextmanager
async def supervised(order: Callable[[], bytes], *, count: int = 2) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(WORKER, order, count=count)
    try:
        await supervisor.start()
        yield supervisor
    finally:
        await supervisor.stop(deadline_s=10)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - what other processes do
            await asyncio.sleep(0.02)


def test_all_serve_a_dead_one_comes_back_and_all_end() -> None:
    """Two places; a killed one is started again, the other one is left alone."""

    async def scene() -> None:
        async with supervised(lambda: b"serve") as found:
            first, second = (one.pid for one in found.workers)
            assert set(found.ports) == {0, 1}
            os.kill(first, signal.SIGKILL)
            await until(lambda: found.restarts == 1 and len(found.ports) == 2)
            assert found.workers[0].pid != first
            assert found.workers[1].pid == second
            pids = [one.pid for one in found.workers]
        assert not any(command_of(pid) for pid in pids)
        assert found.ports == {}

    asyncio.run(scene())


@pytest.mark.parametrize(("order", "code"), [(b"fail", "no_luck"), (b"die", "worker_failed")])
def test_what_fails_at_the_first_start_fails_the_start(order: bytes, code: str) -> None:
    """With the worker's own words, and no process is left."""

    async def scene() -> None:
        orders = iter([b"serve", order])
        with pytest.raises(StartFailed) as failed:
            async with supervised(lambda: next(orders)):
                pass
        assert failed.value.code == code

    asyncio.run(scene())


def test_one_that_cannot_start_again_is_tried_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others serve on; each failure is a line of the log; the end does not wait for it."""

    async def scene() -> None:
        caplog.set_level("INFO", "gateway.workers")
        orders = iter([b"serve", b"serve", b"fail", b"die"])
        async with supervised(lambda: next(orders, b"serve")) as found:
            os.kill(found.workers[1].pid, signal.SIGKILL)
            await until(lambda: found.workers[1].restarts >= 3 and 1 in found.ports)
            assert found.workers[1].backoff_s >= 4
            assert found.workers[0].restarts == 0
            os.kill(found.workers[1].pid, signal.SIGKILL)  # now it would wait for seconds
            await until(lambda: 1 not in found.ports)

    asyncio.run(scene())
    told = [record.getMessage() for record in caplog.records if record.name == "gateway.workers"]
    assert "worker 1 cannot start: no_luck: it cannot serve; try again" in told
    assert "worker 1 ended (signal 9)" in told
    returned = [one for one in told if one.startswith("worker 1 serves again, as process ")]
    assert len(returned) == 1
    assert not any(one.startswith("worker 0") for one in told)


def test_one_that_does_not_end_is_killed_after_the_deadline() -> None:
    """A drain has an end, whatever a worker does."""

    async def scene() -> None:
        supervisor = Supervisor(WORKER, lambda: b"deaf", count=1)
        await supervisor.start()
        pid = supervisor.workers[0].pid
        await supervisor.stop(deadline_s=0.5)
        assert command_of(pid) is None

    asyncio.run(scene())


def test_one_that_starts_just_now_is_told_what_the_others_are() -> None:
    """Regression: what came between its order and the start of its process was lost, so that a
    revocation could pass it by until the next signal."""

    async def scene() -> None:
        def order() -> bytes:
            asyncio.get_running_loop().call_soon(lambda: supervisor.tell(b"4711"))
            return b"told"

        supervisor = Supervisor(WORKER, order, count=1)
        try:
            async with asyncio.timeout(60):
                await supervisor.start()
            assert supervisor.ports == {0: 4711}
        finally:
            await supervisor.stop(deadline_s=10)

    asyncio.run(scene())
