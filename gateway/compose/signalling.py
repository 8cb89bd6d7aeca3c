"""Both ends of the signal worker: who starts it beside the gateway, and what it runs.

It is a process of its own. It reads what no caller may read, so it shares no memory and no event
loop with whoever answers callers. Each gateway starts one; in a cluster one of them leads.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import uvloop

from gateway.compose.embedding import open_embedder
from gateway.compose.failure import CannotStart
from gateway.compose.release import active_policy, folder_policy
from gateway.compose.stores import Stores
from gateway.settings import Settings
from gateway.telemetry import process_log
from gateway.workers.channel import (
    StartFailed,
    next_order,
    receive_order,
    say_failed,
    say_ready,
)
from gateway.workers.supervisor import Supervisor, command
from policies.snapshot import DEFAULT_FOLDER
from policies.thresholds import Thresholds
from retrieval.signals.settings import SignalSettings
from retrieval.signals.worker import SignalWorker

SIGNALLER: Final = "gateway.compose.signaller"
_END_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """What the worker is told. It comes from our own parent process, over its own socket."""

    settings: Settings
    stores: Stores


@asynccontextmanager
async def signalling(settings: Settings, stores: Stores) -> AsyncIterator[None]:
    """A signal worker beside the gateway, started again when it dies; nothing if not wanted.

    Raises: CannotStart for settings that it must not work with.
    """
    if not settings.signals.worker:
        yield
        return
    order = pickle.dumps(Order(settings, stores))
    supervisor = Supervisor(command(SIGNALLER), lambda: order, count=1)
    try:
        await supervisor.start()
    except StartFailed as error:
        raise CannotStart(error.code, error.reason, error.remedy) from error
    try:
        yield
    finally:
        await supervisor.stop(deadline_s=_END_S)


def signal_worker(settings: Settings, stores: Stores) -> SignalWorker:
    """The worker of these settings, not running yet. Raises: CannotStart."""

    try:
        return SignalWorker(
            stores.database_url,
            stores.database_secret,
            signal_settings(settings),
            partial(_thresholds, settings, stores),
            partial(open_embedder, settings),
        )
    except ValueError as error:
        reason = f"`signals.webhook_url` or its secret {error}"
        raise CannotStart("webhook_unusable", reason, "mend the section `signals`") from error


def _thresholds(settings: Settings, stores: Stores) -> Thresholds:
    """Those of the active policy. Raises: CannotStart; PolicyError."""
    try:
        return active_policy(settings, stores).thresholds
    except CannotStart as error:
        if settings.release.signed or error.code != "no_release":
            raise
        # a command activated the folder, and no gateway has kept it as a release yet
        return folder_policy(settings.policy or DEFAULT_FOLDER).snapshot.thresholds


def signal_settings(settings: Settings) -> SignalSettings:
    """What the worker is told of the settings."""
    told = settings.signals
    return SignalSettings(
        events_kept_months=told.events_kept_months,
        deliveries_kept_months=told.deliveries_kept_months,
        repeated=told.repeated,
        routed_per_subject=told.routed_per_subject,
        routed_per_audience=told.routed_per_audience,
        term_subjects_min=told.term_subjects_min,
        window=timedelta(days=told.window_days),
        pause=timedelta(hours=told.pause_hours),
        units_min=told.units_min,
        units_max=told.units_max,
        stale_days=told.stale_days,
        check_hours=told.check_hours,
        period_s=told.period_ms / 1_000,
        webhook_url=told.webhook_url,
        webhook_secret=told.webhook_secret,
        webhook_timeout_s=told.webhook_timeout_ms / 1_000,
    )


def work(channel: socket.socket) -> int:
    """Be the worker until SIGTERM, or until the gateway is gone. The process's exit code."""
    process_log.configure()
    order = pickle.loads(receive_order(channel))  # noqa: S301 - our own parent wrote it
    if not isinstance(order, Order):
        raise TypeError("not an order")
    try:
        worker = signal_worker(order.settings, order.stores)
    except CannotStart as error:
        say_failed(channel, error.code, error.reason, error.remedy)
        return 4
    say_ready(channel, 0)  # it has no listener
    uvloop.run(_until_told(worker, channel))
    return 0


async def _until_told(worker: SignalWorker, channel: socket.socket) -> None:
    channel.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    try:
        await until_signal(worker, gone=next_order(reader))
    finally:
        writer.close()


async def until_signal(
    worker: SignalWorker, *, gone: Coroutine[Any, Any, object] | None = None
) -> None:
    """Run the worker until SIGTERM, SIGINT or ``gone`` ends."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    ends: list[asyncio.Task[Any]] = [
        asyncio.create_task(over.wait()),
        asyncio.create_task(worker.run()),
    ]
    if gone is not None:
        ends.append(asyncio.create_task(gone))
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            _raise_first(one.exception())  # what stops the worker stops the process
    finally:
        for one in ends:
            one.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


def _raise_first(error: BaseException | None) -> None:
    """Raise an error, or the first of a group: a command says one thing."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
