"""The whole gateway as one context: opened in one order and closed in the reverse one.

    policy, ports, stores, schema and activation, telemetry, data path, listeners

Whatever is missing ends the start with one ``CannotStart``: code, reason, remedy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket
from typing import Final

from gateway import server
from gateway.compose import data_path, operators
from gateway.compose.data_path import Parts
from gateway.compose.database import enforcement, signals
from gateway.compose.failure import CannotStart
from gateway.compose.left_out import telling_left_out
from gateway.compose.live import Live
from gateway.compose.release import active_policy, enforced_policy, folder_policy
from gateway.compose.state import announced
from gateway.compose.stores import Stores, started
from gateway.compose.telemetry import opened_telemetry
from gateway.fastpath.keeper import Keeper
from gateway.holder import SnapshotHolder
from gateway.ingress.door import Door
from gateway.ingress.provenance import trusted_peer
from gateway.reload.watcher import Watcher
from gateway.settings import Listen, Settings
from gateway.surfaces.admin.plane import AdminPlane
from gateway.surfaces.checks import gateway_checks
from gateway.surfaces.forward_auth import plane as forward_auth
from gateway.surfaces.forward_auth.lane import lanes_of
from gateway.surfaces.health import Health, health_app
from gateway.telemetry.providers import Telemetry
from policies.snapshot import DEFAULT_FOLDER, Snapshot
from retrieval.service import Retrieval

_START_S: Final = 30.0
_ANY: Final = Listen("127.0.0.1", 0)


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that answers on both listeners until its context is left."""

    url: str
    admin_url: str
    snapshots: SnapshotHolder
    watcher: Watcher
    stores: Stores
    retrieval: Retrieval
    telemetry: Telemetry
    live: Live
    _serving: asyncio.Task[None]

    @property
    def snapshot(self) -> Snapshot:
        """The policy in force."""
        return self.snapshots.current

    async def wait(self) -> None:
        """Return when the listeners have ended: after SIGTERM or SIGINT."""
        await asyncio.shield(self._serving)


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    policy_folder: Path | None = None,
    overlay: Path | None = None,
    embedded: bool = True,
    stores: Stores | None = None,
    listen: Listen | None = None,
) -> AsyncIterator[Running]:
    """The whole gateway, listening; everything is closed in reverse order afterwards.

    ``policy_folder`` (else the folder of the settings, else the installed one) and ``overlay``
    are what is served where releases need no signature; where they do, the active release of
    the database is. ``embedded`` allows services of our own for stores without an address.
    ``stores`` and ``listen`` make it one of several workers: it uses what its supervisor
    prepared, serves the policy that is active and shares that address with the others.

    Raises: policies.errors.PolicyError; server.PortTaken; CannotStart. Cost: about 2 s with
    warm embedded services.
    """
    folder = policy_folder or settings.policy or DEFAULT_FOLDER
    signed = settings.release.signed
    alone = stores is None
    own = await asyncio.to_thread(folder_policy, folder, overlay) if alone and not signed else None
    async with AsyncExitStack() as stack:
        data_socket = stack.enter_context(_bound(listen or settings.listen.public, not alone))
        admin_socket = stack.enter_context(_bound(settings.listen.admin if alone else _ANY))
        if stores is None:
            stores = await stack.enter_async_context(opened_stores(settings, embedded))
            snapshot = await asyncio.to_thread(enforced_policy, settings, stores, own)
        else:
            snapshot = await asyncio.to_thread(active_policy, settings, stores)
        telemetry = opened_telemetry(settings)
        stack.push_async_callback(asyncio.to_thread, telemetry.close)
        parts = await data_path.opened(
            stack, settings, stores, snapshot, telemetry, known_only=alone
        )
        await stack.enter_async_context(telling_left_out(settings, stores, telemetry.counters))
        gateway = await stack.enter_async_context(
            _serving(
                settings, parts, await operators.opened(stack, parts), data_socket, admin_socket
            )
        )
        if alone:
            stack.enter_context(announced(settings, gateway.url, gateway.admin_url))
        yield gateway


@asynccontextmanager
async def opened_stores(settings: Settings, embedded: bool) -> AsyncIterator[Stores]:
    """``started`` off the event loop: starting and stopping embedded services blocks."""
    context = started(settings, embedded_allowed=embedded)
    stores = await asyncio.to_thread(context.__enter__)
    try:
        yield stores
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


@contextmanager
def _bound(listen: Listen, shared: bool = False) -> Iterator[socket]:
    bound = server.bind(listen.host, listen.port, shared=shared)
    with contextlib.closing(bound):
        yield bound


@asynccontextmanager
async def _serving(
    settings: Settings,
    parts: Parts,
    operating: AdminPlane,
    data_socket: socket,
    admin_socket: socket,
) -> AsyncIterator[Running]:
    health = Health(
        gateway_checks(
            snapshots=parts.snapshots,
            watcher=parts.watcher,
            registry=parts.registry,
            retrieval=parts.retrieval,
            journal=parts.journal,
            sealer=parts.sealer,
            index_lag_ms=settings.limits.index_lag_ms,
            enforcement=lambda: enforcement(parts.stores, parts.snapshots.current),
            signals=partial(signals, parts.stores) if settings.signals.worker else None,
        )
    )
    stop, up = asyncio.Event(), asyncio.Event()
    door = _door(parts)

    async def on_drain() -> None:
        health.drain()

    async def on_ready() -> None:
        up.set()

    serving = asyncio.create_task(
        server.serve(
            forward_auth.beside(parts.data_plane),
            operators.beside(operating, health_app(health, parts.telemetry.counters.text)),
            data_socket=data_socket,
            admin_socket=admin_socket,
            limits=parts.data_plane.limits,
            on_drain=on_drain,
            drain_wait_s=settings.limits.drain_ms / 1_000,
            graceful_s=settings.limits.graceful_ms / 1_000,
            stop=stop,
            on_ready=on_ready,
            on_end=parts.data_plane.streams.drain,
            door=door,
            lane=lanes_of(Keeper(parts.data_plane)),
        ),
        name="listeners",
    )
    try:
        ready = asyncio.create_task(up.wait())
        await asyncio.wait({ready, serving}, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not up.is_set():
            reason = "the listeners did not come up"
            raise CannotStart("listeners_failed", reason, "read the log of the process")
        yield Running(
            url=_url(data_socket),
            admin_url=_url(admin_socket),
            snapshots=parts.snapshots,
            watcher=parts.watcher,
            stores=parts.stores,
            retrieval=parts.retrieval,
            telemetry=parts.telemetry,
            live=parts.live,
            _serving=serving,
        )
    finally:
        stop.set()
        await serving


def _door(parts: Parts) -> Door:
    """The connections of the data listener. Whom policy trusts is asked when it matters."""

    def trusted(client: str) -> bool:
        return trusted_peer(client, parts.snapshots.current.trusted_peers) is not None

    recorder, counters = parts.telemetry.recorder, parts.telemetry.counters
    door = Door(parts.data_plane.limits, trusted=trusted, told=recorder.turned_away)
    counters.family(
        "gateway_refused_connections_total",
        "Refusals of the protocol, before there was a request.",
        ("code",),
        door.refused,
    )
    counters.gauge(
        "gateway_connections", "Open connections of the data listener.", lambda: float(door.inside)
    )
    return door


def _url(bound: socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{Listen(host, port)}"
