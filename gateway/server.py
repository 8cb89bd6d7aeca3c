"""The two listeners: sockets, and the runner that starts and drains both servers.

What a connection may send is ``ingress.protocol``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import uvicorn

from gateway.errors import GatewayError
from gateway.ingress import descriptors
from gateway.ingress.door import Door
from gateway.ingress.limits import Limits
from gateway.ingress.protocol import guarded
from gateway.ingress.shortcut import Lane

if TYPE_CHECKING:
    from types import FrameType


class PortTaken(GatewayError):
    """A listener's address is in use or not ours to bind."""


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; port 0 picks a free one. A ``shared`` address may be bound by other
    processes of ours as well, and the kernel spreads connections over those that listen.

    Raises: PortTaken, with the address and what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY on such sockets only; without it each
    # kept-alive answer waits up to 40 ms for the caller's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise PortTaken(
            f"cannot listen on `{host}:{port}` ({error.strerror}); "
            "stop what listens there or set another address"
        ) from error
    sock.set_inheritable(False)
    return sock


class _Server(uvicorn.Server):
    """A server that leaves signals to :func:`serve`, which owns both of them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._bound: list[socket.socket] = []

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._bound = sockets or []
        self.up.set()

    def accept_no_more(self) -> None:
        """Refuse new connections from now on; those that are open go on."""
        for server in self.servers:
            server.close()
        for sock in self._bound:
            sock.close()

    def leave_at(self, moment: float) -> None:
        """Cut at this moment of the monotonic clock what has not ended by itself."""
        left_s = max(0.1, moment - time.monotonic())
        self.config.timeout_graceful_shutdown = left_s  # type: ignore[assignment]  # theirs waits


def server_for(
    app: Any,
    limits: Limits,
    *,
    graceful_s: float,
    sockets: bool = False,
    door: Door | None = None,
    lane: Lane | None = None,
) -> _Server:
    """One guarded uvicorn server around an ASGI callable; start it with a bound socket."""
    return _Server(
        uvicorn.Config(
            app,
            http=guarded(limits, sockets=sockets, door=door, lane=lane),
            ws="none",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            date_header=True,
            access_log=False,
            log_config=None,
            timeout_keep_alive=int(limits.keep_alive_s),
            timeout_graceful_shutdown=int(graceful_s),
        )
    )


async def serve(
    data_app: Any,
    admin_app: Any,
    *,
    data_socket: socket.socket,
    admin_socket: socket.socket,
    limits: Limits,
    on_drain: Callable[[], Awaitable[None]],
    drain_wait_s: float,
    graceful_s: float,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[], Awaitable[None]] | None = None,
    on_end: Callable[[float], Awaitable[None]] | None = None,
    door: Door | None = None,
    lane: Lane | None = None,
) -> None:
    """Serve both listeners until SIGTERM, SIGINT or ``stop``; return when both have drained.
    ``door`` counts the connections of the data listener, ``lane`` may answer beside its app.

    Order of the end: ``on_drain`` (readiness turns false), ``drain_wait_s`` for a load
    balancer to see it, nothing is accepted any more, ``on_end`` ends what would stay open by
    itself, and requests end: both within ``graceful_s``, after which they are cut. Then the second
    listener stops. A second signal skips the waits.
    """
    descriptors.allow(limits.connections)
    stop, hurry = stop or asyncio.Event(), asyncio.Event()
    data = server_for(data_app, limits, graceful_s=graceful_s, sockets=True, door=door, lane=lane)
    admin = server_for(admin_app, limits, graceful_s=1.0)
    with _signals(stop, hurry, (data, admin)):
        tasks = [
            asyncio.create_task(data.serve(sockets=[data_socket]), name="data listener"),
            asyncio.create_task(admin.serve(sockets=[admin_socket]), name="second listener"),
        ]
        waiting = asyncio.create_task(stop.wait())
        try:
            await asyncio.gather(data.up.wait(), admin.up.wait())
            if on_ready is not None:
                await on_ready()
            await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            await on_drain()
            await _unless(hurry, drain_wait_s)
            data.accept_no_more()
            ends_at = time.monotonic() + graceful_s
            if on_end is not None and not hurry.is_set():
                await on_end(graceful_s)
            data.leave_at(ends_at)
            data.should_exit = True
            await tasks[0]
        finally:
            waiting.cancel()
            data.should_exit = admin.should_exit = True
            await asyncio.gather(*tasks)


async def _unless(hurry: asyncio.Event, wait_s: float) -> None:
    """Wait, unless there is a hurry."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await hurry.wait()


@contextlib.contextmanager
def _signals(
    stop: asyncio.Event, hurry: asyncio.Event, servers: Sequence[uvicorn.Server]
) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: FrameType | None = None) -> None:
        if stop.is_set():
            for server in servers:
                server.force_exit = True
            loop.call_soon_threadsafe(hurry.set)
        loop.call_soon_threadsafe(stop.set)

    previous = {}
    with contextlib.suppress(ValueError):  # not the main thread: the owner uses ``stop``
        for number in (signal.SIGTERM, signal.SIGINT):
            previous[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
