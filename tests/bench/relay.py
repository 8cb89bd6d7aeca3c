"""What relaying costs: processor time of one process per GET of 1 KiB, by the client it uses.

The process relays and does nothing else: no token, no policy, no record. ``nothing`` answers
by itself, so that the listener's part can be taken off. Alternated rounds; upstream and load
are processes of their own and not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

REQUESTS: Final = 20_000
CONNECTIONS: Final = 32
_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1024\r\n\r\n"
_ASK: Final = b"GET /a/b?c=d HTTP/1.1\r\nhost: gateway\r\naccept: */*\r\nuser-agent: bench\r\n\r\n"
_UPSTREAM: Final = f"""
import asyncio, sys, uvloop
class Peer(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write({_ANSWER!r} + b"x" * 1024)
async def main():
    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
uvloop.run(main())
"""


class _Asking(asyncio.Protocol):
    """One kept connection that asks again as soon as it has an answer."""

    def __init__(self, left: list[int], done: asyncio.Future[None]) -> None:
        self._left = left
        self._done = done
        self._got = self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        transport.write(_ASK)  # type: ignore[attr-defined]  # a transport of the loop

    def data_received(self, data: bytes) -> None:
        if not self._got:
            self._size = data.index(b"\r\n\r\n") + 4 + 1024
        self._got += len(data)
        if self._got < self._size:
            return
        self._got = 0
        self._left[0] -= 1
        if self._left[0] > 0:
            self._transport.write(_ASK)
        elif not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError("the relay closed a connection"))


async def _load(port: int, requests: int) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    left = [requests]
    opened = [
        await loop.create_connection(lambda: _Asking(left, done), "127.0.0.1", port)
        for _ in range(CONNECTIONS)
    ]
    await done
    for transport, _ in opened:
        transport.abort()


@contextlib.contextmanager
def _started(*command: str) -> Iterator[tuple[int, int]]:
    """A process that prints its port and ends with its input: (pid, port)."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())


def _on_core_ns(pid: int) -> int:
    """Nanoseconds that all threads of a process have had a core."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads)


def run(out: Console, rounds: int) -> dict[str, Any]:
    """Microseconds per GET, median of the rounds, for each client that is installed."""
    clients = ["nothing", "pool"]
    if importlib.util.find_spec("aiohttp") is not None:
        clients.append("aiohttp")
    with contextlib.ExitStack() as stack:
        _, upstream = stack.enter_context(_started(sys.executable, "-c", _UPSTREAM))
        relaying = (sys.executable, "-m", "tests.gateway.relay.relaying", str(upstream))
        relays = {name: stack.enter_context(_started(*relaying, name)) for name in clients}
        for _, port in relays.values():
            uvloop.run(_load(port, 2_000))
        found: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(rounds):
            for name, (pid, port) in relays.items():
                before = _on_core_ns(pid)
                uvloop.run(_load(port, REQUESTS))
                found[name].append((_on_core_ns(pid) - before) / REQUESTS / 1_000)
    medians = {name: statistics.median(values) for name, values in found.items()}
    table = Table("client", "us CPU per GET of 1 KiB", "rounds", "less the listener", "ratio")
    for name, median in medians.items():
        own = median - medians["nothing"]
        pool = medians["pool"] - medians["nothing"]
        ratio = f"{own / pool:.2f}" if name != "nothing" else ""
        each = " ".join(f"{value:.1f}" for value in found[name])
        table.add_row(name, f"{median:.1f}", each, f"{own:.1f}", ratio)
    out.print(table)
    return {"requests": REQUESTS, "connections": CONNECTIONS, "us": found, "median_us": medians}
