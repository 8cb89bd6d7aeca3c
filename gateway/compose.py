"""The composition root: the one gateway module that knows retrieval from the inside.

Everything is opened here in one order and closed in the reverse one:

    policy, ports, stores, schema and activation, telemetry, journal and sealer, registry,
    retrieval, data path, listeners

Whatever is missing ends the start with one ``CannotStart``: code, reason, remedy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Final
from urllib.parse import urlsplit

import psycopg
from joserfc.jwk import ECKey
from pydantic import SecretStr

from gateway import server
from gateway.app import DataPlane
from gateway.authn.bearer import Authenticator
from gateway.authn.own_keys import BadKeyFile, OwnKeys
from gateway.egress.guard import Guard
from gateway.egress.registry import PostgresRegistry
from gateway.holder import SnapshotHolder
from gateway.ingress.limits import Limits
from gateway.journal.event import JournalUnavailable
from gateway.journal.postgres import PostgresJournal
from gateway.journal.sealer import Sealer
from gateway.relay.fetch import fetch
from gateway.relay.hop import Hop, Target
from gateway.relay.pool import Address, Pool
from gateway.relay.retrieval import InProcessRetrieval
from gateway.relay.upstream import UpstreamTimes
from gateway.settings import LimitSettings, Listen, Settings, UpstreamSettings
from gateway.stores import (
    KEY_FILE,
    CannotStart,
    Stores,
    announced,
    attached,
    running_address,
    started,
    state_folder,
    write_private,
)
from gateway.surfaces.checks import gateway_checks
from gateway.surfaces.health import Health, health_app
from gateway.telemetry.providers import Telemetry, open_telemetry
from gateway.telemetry.recorder import NotingJournal
from policies.mapping import IngestMapping
from policies.snapshot import DEFAULT_FOLDER, Snapshot
from policies.snapshot import load as load_policy
from retrieval.app import RetrievalApp, open_retrieval
from retrieval.embed.cache import CachedEmbedder
from retrieval.embed.ports import Embedder
from retrieval.embed.registry import embedder
from retrieval.errors import RetrievalError
from retrieval.ingest import IngestRefused, OnProgress, Report
from retrieval.ingest import run as run_ingest
from retrieval.schema.history import MigrationRefused
from retrieval.schema.migrate import migrate
from retrieval.service import Retrieval
from retrieval.settings import StoreSettings
from retrieval.stores.activation import ActivationRefused, activate
from retrieval.stores.enforcement import NotEnforced, assert_enforced
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import GUARD, INDEX, INGEST, JOURNAL, POLICY, SEAL, dsn_for

__all__ = [
    "CannotStart",
    "Running",
    "Stores",
    "attached",
    "prepare",
    "running",
    "running_address",
    "state_folder",
    "station_dsn",
]

_START_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that answers on both listeners until its context is left."""

    url: str
    admin_url: str
    snapshot: Snapshot
    stores: Stores
    retrieval: Retrieval
    telemetry: Telemetry
    _serving: asyncio.Task[None]

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
) -> AsyncIterator[Running]:
    """The whole gateway, listening; everything is closed in reverse order afterwards.

    ``policy_folder`` and ``overlay`` go to ``policies.snapshot.load`` (the folder of the
    settings, else the installed one). ``embedded`` allows services of our own for stores
    without an address.

    Raises: policies.errors.PolicyError; server.PortTaken; CannotStart. Cost: about 2 s with
    warm embedded services.
    """
    folder = policy_folder or settings.policy or DEFAULT_FOLDER
    snapshot = await asyncio.to_thread(load_policy, folder, overlay)
    async with AsyncExitStack() as stack:
        data_socket = stack.enter_context(_bound(settings.listen.public))
        admin_socket = stack.enter_context(_bound(settings.listen.admin))
        stores = await stack.enter_async_context(_stores(settings, embedded))
        await asyncio.to_thread(prepare, stores, snapshot)
        telemetry = open_telemetry(settings.telemetry, instance=f"{os.getpid()}")
        stack.push_async_callback(asyncio.to_thread, telemetry.close)
        parts = await _parts(stack, settings, stores, snapshot, telemetry)
        gateway = await stack.enter_async_context(
            _serving(settings, parts, data_socket, admin_socket)
        )
        stack.enter_context(announced(settings, gateway.url, gateway.admin_url))
        yield gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Everything that was opened, as the listeners and the health checks need it."""

    snapshot: Snapshot
    stores: Stores
    telemetry: Telemetry
    journal: PostgresJournal
    sealer: Sealer
    registry: PostgresRegistry
    retrieval: Retrieval
    data_plane: DataPlane


async def _parts(
    stack: AsyncExitStack,
    settings: Settings,
    stores: Stores,
    snapshot: Snapshot,
    telemetry: Telemetry,
) -> _Parts:
    limits = settings.limits
    holder = SnapshotHolder(snapshot)
    keys = await asyncio.to_thread(_own_keys, settings)
    journal = PostgresJournal(station_dsn(stores, JOURNAL), deadline_ms=limits.journal_ms)
    try:
        await journal.open()
    except JournalUnavailable as error:
        raise _no_database(str(error)) from error
    stack.push_async_callback(journal.close)
    sealer = Sealer(station_dsn(stores, SEAL))
    sealer.start()
    stack.push_async_callback(sealer.stop)
    registry = PostgresRegistry(station_dsn(stores, GUARD), size=settings.database.pool_max)
    await registry.open()
    stack.push_async_callback(registry.close)
    retrieval = await _retrieval(stack, settings, stores, holder)
    hop = Hop(_targets(settings.upstreams), keys=keys, gateway_id=settings.gateway_id)
    stack.push_async_callback(hop.aclose)
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
        sink=telemetry.recorder,
        limits=_limits(limits),
        gateway_id=settings.gateway_id,
    )
    return _Parts(
        snapshot=snapshot,
        stores=stores,
        telemetry=telemetry,
        journal=journal,
        sealer=sealer,
        registry=registry,
        retrieval=retrieval,
        data_plane=data_plane,
    )


async def _retrieval(
    stack: AsyncExitStack, settings: Settings, stores: Stores, holder: SnapshotHolder
) -> Retrieval:
    try:
        model = await asyncio.to_thread(open_embedder, settings)
        return await stack.enter_async_context(
            open_retrieval(store_settings(settings, stores), lambda: holder.current, model)
        )
    except RetrievalError as error:
        raise _no_database(str(error)) from error


# --- stores ---------------------------------------------------------------------------------


@asynccontextmanager
async def _stores(settings: Settings, embedded: bool) -> AsyncIterator[Stores]:
    """``started`` off the event loop: starting and stopping embedded services blocks."""
    context = started(settings, embedded_allowed=embedded)
    stores = await asyncio.to_thread(context.__enter__)
    try:
        yield stores
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


def station_dsn(stores: Stores, role: str) -> str:
    """The connection string of one database role of ours (``gw_seal``)."""
    return dsn_for(role, stores.database_url, stores.database_secret)


def store_settings(settings: Settings, stores: Stores) -> StoreSettings:
    """What retrieval and ingest are told about the stores."""
    return StoreSettings(
        database_url=stores.database_url,
        database_secret=SecretStr(stores.database_secret),
        qdrant_url=stores.qdrant_url,
        qdrant_api_key=SecretStr(stores.qdrant_api_key),
        collection=settings.qdrant.collection or f"units-{settings.embedder.name}",
        connections_max=settings.database.pool_max,
        lag_objective_s=settings.limits.index_lag_ms / 1_000,
    )


def open_embedder(settings: Settings) -> Embedder:
    """The configured embedder, reading the vector cache if there is one.

    Raises: CannotStart for an unknown name or a malformed cache.
    """
    try:
        model = embedder(settings.embedder.name)
        if settings.embedder.vector_cache is None:
            return model
        return CachedEmbedder(model, own=settings.embedder.vector_cache)
    except (ValueError, OSError) as error:
        remedy = "mend `embedder` in the settings"
        raise CannotStart("embedder_unusable", str(error), remedy) from error


def prepare(stores: Stores, snapshot: Snapshot, *, activated_by: str = "gateway") -> None:
    """Bring the database to this version and make it enforce ``snapshot``; then prove it.

    Raises: CannotStart.
    """
    try:
        migrate(stores.database_url, stores.database_secret, snapshot)
        with psycopg.connect(station_dsn(stores, POLICY), autocommit=True) as connection:
            activate(connection, snapshot, activated_by=activated_by)
        assert_enforced(stores.database_url, snapshot)
    except psycopg.OperationalError as error:
        raise _no_database(_first_line(error)) from error
    except (MigrationRefused, ActivationRefused, psycopg.Error) as error:
        remedy = "compare the database with this version's migrations and policy"
        raise CannotStart("database_unfit", _first_line(error), remedy) from error
    except NotEnforced as error:
        remedy = "restore it from the migrations; nothing is served until then"
        raise CannotStart("not_enforced", "; ".join(error.reasons), remedy) from error


def prepare_if_new(stores: Stores, snapshot: Snapshot) -> None:
    """Bring the database to this version, and activate ``snapshot`` if none is active.

    For commands: one that only writes data must not change the policy of a running gateway.
    Raises: CannotStart.
    """
    try:
        migrate(stores.database_url, stores.database_secret, snapshot)
        with psycopg.connect(station_dsn(stores, POLICY), autocommit=True) as connection:
            if connection.execute("select 1 from gate.active_revision").fetchone() is None:
                activate(connection, snapshot, activated_by="gateway")
    except psycopg.OperationalError as error:
        raise _no_database(_first_line(error)) from error
    except (MigrationRefused, ActivationRefused, psycopg.Error) as error:
        remedy = "compare the database with this version's migrations and policy"
        raise CannotStart("database_unfit", _first_line(error), remedy) from error


def ingest_into(
    stores: Stores,
    source: Path,
    mapping: IngestMapping,
    model: Embedder,
    *,
    on_progress: OnProgress | None = None,
) -> Report:
    """Bring ``source`` into the record of truth with vectors. Raises: CannotStart."""
    try:
        return run_ingest(
            source,
            mapping,
            dsn=station_dsn(stores, INGEST),
            embedder=model,
            on_progress=on_progress,
        )
    except IngestRefused as error:
        raise CannotStart(error.code, error.reason, error.remedy) from error


async def fill_index(settings: Settings, stores: Stores, model: Embedder) -> int:
    """Carry what is pending into the vector index; how many changes that was.

    Raises: CannotStart when the index or the database does not answer.
    """
    told = store_settings(settings, stores)
    key = told.qdrant_api_key.get_secret_value()
    index = QdrantIndex(told.qdrant_url, key, told.collection, model.dims)
    try:
        await index.ensure()
        return await OutboxWorker(station_dsn(stores, INDEX), index, model).drain()
    except RetrievalError as error:
        remedy = "what was ingested is kept; the next `gateway serve` goes on"
        raise CannotStart("index_unavailable", str(error), remedy) from error
    finally:
        await index.close()


def _no_database(reason: str) -> CannotStart:
    remedy = "start Postgres, or mend GATEWAY_DATABASE_URL and its secret"
    return CannotStart("database_unavailable", reason, remedy)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:400]


# --- the data path's parts ------------------------------------------------------------------


def _own_keys(settings: Settings) -> OwnKeys:
    """The signing keys: the configured file, else one that is made once in the state folder."""
    configured = settings.keys.assertion_file
    path = configured or state_folder(settings) / KEY_FILE
    try:
        if configured is None and not path.exists():
            fresh = ECKey.generate_key("P-256", auto_kid=False).as_pem(private=True)
            write_private(path, fresh.decode("ascii"))
        return OwnKeys.from_pem(path.read_bytes())
    except (OSError, BadKeyFile) as error:
        reason = f"the signing key `{path}` cannot be used ({_first_line(error)})"
        raise CannotStart("key_unusable", reason, "mend GATEWAY_ASSERTION_KEY_FILE") from error


def _targets(upstreams: dict[str, UpstreamSettings]) -> dict[str, Target]:
    return {name: _target(upstream) for name, upstream in upstreams.items()}


def _target(upstream: UpstreamSettings) -> Target:
    parts = urlsplit(upstream.address)
    tls = parts.scheme == "https"
    address = Address(host=parts.hostname or "", port=parts.port or (443 if tls else 80), tls=tls)
    times = UpstreamTimes(connect_s=upstream.connect_ms / 1_000)
    return Target(
        address.authority,
        lambda: Pool(address=address, times=times, limit=upstream.connections_max),
    )


def _limits(limits: LimitSettings) -> Limits:
    return Limits(
        header_bytes=limits.header_bytes_max,
        header_count=limits.header_count_max,
        target_bytes=limits.target_bytes_max,
        header_s=limits.header_ms / 1_000,
        keep_alive_s=limits.keep_alive_ms / 1_000,
        body_bytes=limits.body_bytes_max,
        body_s=limits.body_ms / 1_000,
        request_s=limits.request_ms / 1_000,
        connections=limits.connections_max,
    )


# --- listeners and health -------------------------------------------------------------------


@contextmanager
def _bound(listen: Listen) -> Iterator[socket]:
    bound = server.bind(listen.host, listen.port)
    with contextlib.closing(bound):
        yield bound


@asynccontextmanager
async def _serving(
    settings: Settings, parts: _Parts, data_socket: socket, admin_socket: socket
) -> AsyncIterator[Running]:
    health = Health(
        gateway_checks(
            digest=parts.snapshot.digest,
            registry=parts.registry,
            retrieval=parts.retrieval,
            journal=parts.journal,
            sealer=parts.sealer,
            index_lag_ms=settings.limits.index_lag_ms,
        )
    )
    stop, up = asyncio.Event(), asyncio.Event()

    async def on_drain() -> None:
        health.drain()

    async def on_ready() -> None:
        up.set()

    serving = asyncio.create_task(
        server.serve(
            parts.data_plane,
            health_app(health, parts.telemetry.counters.text),
            data_socket=data_socket,
            admin_socket=admin_socket,
            limits=parts.data_plane.limits,
            on_drain=on_drain,
            drain_wait_s=settings.limits.drain_ms / 1_000,
            graceful_s=settings.limits.graceful_ms / 1_000,
            stop=stop,
            on_ready=on_ready,
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
            snapshot=parts.snapshot,
            stores=parts.stores,
            retrieval=parts.retrieval,
            telemetry=parts.telemetry,
            _serving=serving,
        )
    finally:
        stop.set()
        await serving


def _url(bound: socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{Listen(host, port)}"
