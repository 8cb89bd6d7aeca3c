"""Both ends of several workers: who prepares and supervises them, and what each of them runs.

The supervisor does once what must be done once: it takes the port, starts embedded services,
brings the database to this version and activates the folder. A worker is told where everything
is and serves what is *active*, so that one that starts again never changes the policy.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import uvloop

from gateway import server
from gateway.compose.failure import CannotStart
from gateway.compose.live import reread
from gateway.compose.release import enforced_policy, folder_policy
from gateway.compose.route_limits import route_limits
from gateway.compose.running import Running, opened_stores, running
from gateway.compose.signing import prepare_keys
from gateway.compose.state import announced
from gateway.compose.stores import Stores
from gateway.compose.upstreams import fleet_of, targets
from gateway.ingress.limits import Limits
from gateway.settings import Listen, Settings
from gateway.settings.live import taken_over
from gateway.settled import settle
from gateway.telemetry import process_log
from gateway.workers.channel import (
    StartFailed,
    next_order,
    receive_order,
    say_failed,
    say_ready,
)
from gateway.workers.supervisor import Supervisor, command
from gateway.workers.telling import Telling
from policies.errors import PolicyError
from policies.snapshot import DEFAULT_FOLDER, Snapshot

WORKER: Final = "gateway.compose.worker"
_SPARE_S: Final = 15.0
"""What a worker may take to close its stores and telemetry after its last request."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is told. It comes from our own parent process, over its own socket."""

    settings: Settings
    stores: Stores
    listen: Listen


class _Orders:
    """What a worker that starts now is told."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def replace(self, settings: Settings) -> None:
        for one in settings.upstreams.values():
            fleet_of(one)
        self._order = replace(self._order, settings=taken_over(self._order.settings, settings))

    def __call__(self) -> bytes:
        return pickle.dumps(self._order)


@dataclass(frozen=True, slots=True)
class Working:
    """Workers that serve one address until the context is left."""

    url: str
    admin_url: str
    stores: Stores
    supervisor: Supervisor
    _orders: _Orders
    _over: asyncio.Event

    async def apply(self, settings: Settings) -> None:
        """Hand every worker other settings; one that starts again gets what they took over.

        Raises: CannotStart when an upstream of theirs cannot be used; then none gets them.
        """
        self._orders.replace(settings)
        self.supervisor.tell(pickle.dumps(settings))

    async def wait(self) -> None:
        """Return at SIGTERM or SIGINT."""
        await self._over.wait()


@asynccontextmanager
async def working(settings: Settings, *, workers: int, embedded: bool) -> AsyncIterator[Working]:
    """Workers that all serve; drained together afterwards.

    Raises: as ``running``, also for what a worker could not do.
    """
    if not sys.platform.startswith("linux"):
        reason = "only Linux spreads connections over the processes of one port"
        raise CannotStart("workers_unsupported", reason, "start one worker")
    signed = settings.release.signed
    folder = settings.policy or DEFAULT_FOLDER
    own = None if signed else await asyncio.to_thread(folder_policy, folder)
    async with AsyncExitStack() as stack:
        listen = settings.listen.public
        # bound, never listening: the port stays ours while no worker is there
        kept = stack.enter_context(closing(server.bind(listen.host, listen.port, shared=True)))
        admin = settings.listen.admin
        admin_socket = stack.enter_context(closing(server.bind(admin.host, admin.port)))
        stores = await stack.enter_async_context(opened_stores(settings, embedded))
        snapshot = await asyncio.to_thread(enforced_policy, settings, stores, own)
        _checked(settings, snapshot)
        await asyncio.to_thread(prepare_keys, settings)
        host, port = kept.getsockname()[:2]
        orders = _Orders(Order(settings, stores, Listen(host, port)))
        supervisor = Supervisor(command(WORKER), orders, count=workers)
        over = asyncio.Event()
        _stop_at_signals(over, supervisor)
        try:
            await _started(supervisor)
            admin_url = await stack.enter_async_context(
                _telling(settings, supervisor, admin_socket, over, workers)
            )
            url = f"http://{Listen(host, port)}"
            stack.enter_context(announced(settings, url, admin_url))
            yield Working(url, admin_url, stores, supervisor, orders, over)
        finally:
            over.set()
            limits = settings.limits
            patience_s = (limits.drain_ms + limits.graceful_ms) / 1_000 + _SPARE_S
            await supervisor.stop(deadline_s=patience_s)


def _checked(settings: Settings, snapshot: Snapshot) -> None:
    """Refuse an upstream or a route that the policy has not. A worker does not: one that starts
    again may meet another policy, or settings that came before theirs."""
    targets(settings.upstreams, snapshot.upstreams)
    route_limits(settings.route_limits, {route.id for route in snapshot.routes})


async def _started(supervisor: Supervisor) -> None:
    try:
        await supervisor.start()
    except StartFailed as error:
        raise CannotStart(error.code, error.reason, error.remedy) from error


def _stop_at_signals(over: asyncio.Event, supervisor: Supervisor) -> None:
    """The first signal begins the end, whatever is being waited for: the signals' worker takes
    seconds to start. A second one skips the waits of every worker."""

    def handle() -> None:
        if over.is_set():
            supervisor.send(signal.SIGTERM)
        over.set()
        supervisor.drain()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)


@asynccontextmanager
async def _telling(
    settings: Settings,
    supervisor: Supervisor,
    admin_socket: socket.socket,
    over: asyncio.Event,
    workers: int,
) -> AsyncIterator[str]:
    """The supervisor's listener. It ends after the workers, and says that they drain."""
    telling = Telling(lambda: supervisor.ports, count=workers)
    telling.gauges["gateway_workers"] = (
        "Workers that serve.",
        lambda: float(len(supervisor.ports)),
    )
    telling.gauges["gateway_worker_restarts"] = (
        "Workers that were started again since the start.",
        lambda: float(supervisor.restarts),
    )
    limits = Limits(header_s=settings.limits.header_ms / 1_000)
    listener = server.server_for(telling, limits, graceful_s=1.0)
    serving = asyncio.create_task(listener.serve(sockets=[admin_socket]), name="second listener")

    async def drains() -> None:
        await over.wait()
        telling.drain()

    draining = asyncio.create_task(drains())
    await listener.up.wait()
    host, port = admin_socket.getsockname()[:2]
    try:
        yield f"http://{Listen(host, port)}"
    finally:
        draining.cancel()
        listener.should_exit = True
        await serving


def work(channel: socket.socket) -> int:
    """Be a worker until SIGTERM, or until the supervisor is gone. The process's exit code."""
    process_log.configure()
    order = pickle.loads(receive_order(channel))  # noqa: S301 - our own parent wrote it
    if not isinstance(order, Order):
        raise TypeError("not an order")
    try:
        uvloop.run(_work(channel, order))
    except CannotStart as error:
        say_failed(channel, error.code, error.reason, error.remedy)
    except PolicyError as error:
        remedy = "run `gateway policy verify`; a policy that cannot be proven is not served"
        say_failed(channel, "policy_invalid", " ".join(str(error).split()), remedy)
    except server.PortTaken as error:
        reason, _, remedy = str(error).partition("; ")
        say_failed(channel, "port_taken", reason, remedy)
    else:
        return 0
    return 4


async def _work(channel: socket.socket, order: Order) -> None:
    async with running(order.settings, stores=order.stores, listen=order.listen) as gateway:
        settle()
        say_ready(channel, int(gateway.admin_url.rpartition(":")[2]))
        channel.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=channel)
        obeying = asyncio.create_task(_obey(reader, gateway), name="orders")
        try:
            await gateway.wait()
        finally:
            obeying.cancel()
            await asyncio.gather(obeying, return_exceptions=True)
            writer.close()


async def _obey(reader: asyncio.StreamReader, gateway: Running) -> None:
    """Take over each settings that come; drain when the supervisor is gone."""
    while (order := await next_order(reader)) is not None:
        settings = pickle.loads(order)  # noqa: S301 - as above
        await reread(partial(_same, settings), gateway.live.apply)
    os.kill(os.getpid(), signal.SIGTERM)


def _same(settings: Settings) -> Settings:
    return settings
