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
from gateway.compose.backends import publish_backends
from gateway.compose.database import station_dsn, store_settings
from gateway.compose.embedding import open_embedder
from gateway.compose.failure import no_database
from gateway.compose.listener import limits_of
from gateway.compose.live import Live, tell_strangers
from gateway.compose.route_limits import admission_of
from gateway.compose.signing import opened_keys
from gateway.compose.stores import Stores
from gateway.compose.trust import revoked_of
from gateway.compose.upstreams import Upstreams
from gateway.egress.cursors import Cursors
from gateway.egress.guard import Guard
from gateway.egress.registry import PostgresRegistry
from gateway.holder import SnapshotHolder
from gateway.journal.event import JournalUnavailable
from gateway.journal.postgres import PostgresJournal
from gateway.journal.sealer import Sealer
from gateway.relay.fetch import fetch
from gateway.relay.hop import Hop
from gateway.relay.retrieval import InProcessRetrieval
from gateway.reload.watcher import Watcher
from gateway.settings import Settings
from gateway.shadow.keeping import ShadowKeeper
from gateway.shadow.observer import Shadow
from gateway.shadow.sink import ShadowedSink, publish
from gateway.streams.consents import Consents
from gateway.telemetry.providers import Telemetry
from gateway.telemetry.recorder import NotingJournal
from policies.portable import packed
from policies.snapshot import Snapshot
from retrieval.app import RetrievalApp, open_retrieval
from retrieval.errors import RetrievalError
from retrieval.service import Retrieval
from retrieval.stores.roles import GUARD, JOURNAL, RATE, SEAL, WATCH, derived_key

if TYPE_CHECKING:
    from gateway.relay.admission import Admission, RateStore


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
    live: Live


async def opened(
    stack: AsyncExitStack,
    settings: Settings,
    stores: Stores,
    snapshot: Snapshot,
    telemetry: Telemetry,
    *,
    known_only: bool = True,
) -> Parts:
    """``known_only``: settings may name no upstream and no route that the policy has not.

    Raises: CannotStart.
    """
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
    upstreams = Upstreams(settings.upstreams, snapshot.upstreams, known_only=known_only)
    hop = Hop(upstreams.targets, keys=keys, gateway_id=settings.gateway_id)
    stack.push_async_callback(hop.aclose)
    stack.push_async_callback(upstreams.aclose)
    publish_backends(lambda: upstreams.reached, telemetry.counters)
    shadow = Shadow(holder)
    publish(shadow, telemetry.counters)
    keeper = ShadowKeeper(shadow, station_dsn(stores, WATCH))
    keeper.start()
    stack.push_async_callback(keeper.stop)
    revoked = revoked_of(settings)
    tell_strangers(revoked, snapshot)
    rates = await _shared_rates(stack, settings, stores, telemetry)
    data_plane = DataPlane(
        snapshots=holder,
        authenticator=Authenticator(fetch=fetch, revoked=revoked),
        keys=keys,
        guard=Guard(
            retrieval=InProcessRetrieval(RetrievalApp(retrieval)),
            registry=registry,
            journal=NotingJournal(journal, telemetry.recorder),
            cursors=Cursors(derived_key("cursor", stores.database_secret)),
        ),
        hop=hop,
        sink=ShadowedSink(telemetry.recorder, shadow),
        limits=limits_of(limits),
        gateway_id=settings.gateway_id,
        admission=_admission(settings, snapshot, rates, known_only=known_only),
    )
    data_plane.streams.publish(telemetry.counters)
    data_plane.streams.withdrawals = Consents(registry.consents)
    data_plane.streams.keys = lambda: data_plane.authenticator.generation
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
        live=Live(
            settings,
            plane=data_plane,
            upstreams=upstreams,
            samples=telemetry.recorder,
            rates=rates,
        ),
    )


async def _shared_rates(
    stack: AsyncExitStack, settings: Settings, stores: Stores, telemetry: Telemetry
) -> RateStore | None:
    """The store of allowances that gateways share, None where each has its own."""
    if not settings.limits.shared_rates:
        return None
    from gateway.relay.shared_rates import SharedRates

    rates = SharedRates(station_dsn(stores, RATE), size=settings.database.pool_max)
    await rates.open()
    stack.push_async_callback(rates.close)
    telemetry.counters.family(
        "gateway_rate_decisions_total",
        "Requests on routes with a rate, by who decided: the shared store, or a gateway alone.",
        ("by",),
        rates.decisions,
    )
    return rates


def _admission(
    settings: Settings, snapshot: Snapshot, rates: RateStore | None, *, known_only: bool
) -> Admission | None:
    limits, known = settings.route_limits, {route.id for route in snapshot.routes}
    if not known_only:  # a policy that came later may have dropped a route
        limits = {route: limit for route, limit in limits.items() if route in known}
    return admission_of(limits, snapshot.routes, rates)


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
