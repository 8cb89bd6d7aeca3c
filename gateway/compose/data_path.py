"""The data path and everything that it stands on, opened in one order and closed in reverse:

journal and sealer, registry, retrieval, hop, data plane
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.app import DataPlane
from gateway.authn.bearer import Authenticator
from gateway.compose import reloading
from gateway.compose.database import station_dsn, store_settings
from gateway.compose.failure import no_database
from gateway.compose.filling import open_embedder
from gateway.compose.signing import opened_keys
from gateway.compose.stores import Stores
from gateway.compose.upstreams import targets
from gateway.egress.guard import Guard
from gateway.egress.registry import PostgresRegistry
from gateway.holder import SnapshotHolder
from gateway.ingress.limits import Limits
from gateway.journal.event import JournalUnavailable
from gateway.journal.postgres import PostgresJournal
from gateway.journal.sealer import Sealer
from gateway.relay.fetch import fetch
from gateway.relay.hop import Hop
from gateway.relay.retrieval import InProcessRetrieval
from gateway.reload.watcher import Watcher
from gateway.settings import LimitSettings, Settings
from gateway.shadow.keeping import ShadowKeeper
from gateway.shadow.observer import Shadow
from gateway.shadow.sink import ShadowedSink, publish
from gateway.telemetry.providers import Telemetry
from gateway.telemetry.recorder import NotingJournal
from policies.portable import packed
from policies.snapshot import Snapshot
from retrieval.app import RetrievalApp, open_retrieval
from retrieval.errors import RetrievalError
from retrieval.service import Retrieval
from retrieval.stores.roles import GUARD, JOURNAL, SEAL, WATCH

if TYPE_CHECKING:
    from gateway.relay.admission import Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that was opened, as the listeners and the health checks need it."""

    snapshots: SnapshotHolder
    watcher: Watcher
    stores: Stores
    telemetry: Telemetry
    journal: PostgresJournal
    sealer: Sealer
    registry: PostgresRegistry
    retrieval: Retrieval
    data_plane: DataPlane


async def opened(
    stack: AsyncExitStack,
    settings: Settings,
    stores: Stores,
    snapshot: Snapshot,
    telemetry: Telemetry,
) -> Parts:
    limits = settings.limits
    holder = SnapshotHolder(packed(snapshot))
    watcher = await reloading.opened(stack, settings, stores, holder)
    reloading.publish(watcher, telemetry.counters)
    loop = asyncio.get_running_loop()
    telemetry.counters.gauge(
        "gateway_tasks", "Tasks of the event loop.", lambda: float(len(asyncio.all_tasks(loop)))
    )
    keys = await opened_keys(stack, settings)
    journal = PostgresJournal(station_dsn(stores, JOURNAL), deadline_ms=limits.journal_ms)
    try:
        await journal.open()
    except JournalUnavailable as error:
        raise no_database(str(error)) from error
    stack.push_async_callback(journal.close)
    sealer = Sealer(station_dsn(stores, SEAL))
    sealer.start()
    stack.push_async_callback(sealer.stop)
    registry = PostgresRegistry(station_dsn(stores, GUARD), size=settings.database.pool_max)
    await registry.open()
    stack.push_async_callback(registry.close)
    retrieval = await _retrieval(stack, settings, stores, holder)
    hop = Hop(
        targets(settings.upstreams, snapshot.upstreams), keys=keys, gateway_id=settings.gateway_id
    )
    stack.push_async_callback(hop.aclose)
    shadow = Shadow(holder)
    publish(shadow, telemetry.counters)
    keeper = ShadowKeeper(shadow, station_dsn(stores, WATCH))
    keeper.start()
    stack.push_async_callback(keeper.stop)
    data_plane = DataPlane(
        snapshots=holder,
        authenticator=Authenticator(fetch=fetch),
        keys=keys,
        guard=Guard(
            retrieval=InProcessRetrieval(RetrievalApp(retrieval)),
            registry=registry,
            journal=NotingJournal(journal, telemetry.recorder),
        ),
        hop=hop,
        sink=ShadowedSink(telemetry.recorder, shadow),
        limits=_limits(limits),
        gateway_id=settings.gateway_id,
        admission=_admission(settings, snapshot),
    )
    return Parts(
        snapshots=holder,
        watcher=watcher,
        stores=stores,
        telemetry=telemetry,
        journal=journal,
        sealer=sealer,
        registry=registry,
        retrieval=retrieval,
        data_plane=data_plane,
    )


def _admission(settings: Settings, snapshot: Snapshot) -> Admission | None:
    if not settings.route_limits:
        return None
    from gateway.compose.route_limits import admission_of

    return admission_of(settings.route_limits, {route.id for route in snapshot.routes})


async def _retrieval(
    stack: AsyncExitStack, settings: Settings, stores: Stores, holder: SnapshotHolder
) -> Retrieval:
    try:
        model = await asyncio.to_thread(open_embedder, settings)
        return await stack.enter_async_context(
            open_retrieval(store_settings(settings, stores), lambda: holder.current, model)
        )
    except RetrievalError as error:
        raise no_database(str(error)) from error


def _limits(limits: LimitSettings) -> Limits:
    return Limits(
        header_bytes=limits.header_bytes_max,
        header_count=limits.header_count_max,
        target_bytes=limits.target_bytes_max,
        header_s=limits.header_ms / 1_000,
        keep_alive_s=limits.keep_alive_ms / 1_000,
        body_bytes=limits.body_bytes_max,
        body_s=limits.body_ms / 1_000,
        body_idle_s=limits.body_idle_ms / 1_000,
        body_rate=limits.body_rate_min,
        request_s=limits.request_ms / 1_000,
        connections=limits.connections_max,
    )
