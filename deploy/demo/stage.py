"""Everything the demo needs, started in order and stopped in the reverse one.

    identity provider, policy overlay and settings file, gateway with its embedded stores,
    portals, corpus

Nothing here is a second way to run the gateway: it is composed by ``gateway.compose`` from a
settings file that any ``gateway`` command takes by ``--config``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Final

import httpx
import psycopg

from deploy.demo import kept as kept_files
from deploy.demo import overlay
from deploy.demo.anew import begin_anew, of_another_version, own_stores
from deploy.demo.embed import VECTORS
from deploy.demo.expected import CORPUS
from deploy.demo.identity import Directory
from deploy.demo.identity import application as identity_application
from deploy.demo.kept import Kept
from deploy.demo.people import CLIENTS, Realm
from deploy.demo.portals.app import PORTALS, Portal
from deploy.demo.portals.app import application as portal_application
from deploy.demo.portals.assertion import Doorkeeper
from deploy.demo.portals.backend import Backend
from deploy.demo.ports import IDENTITY, listening
from deploy.demo.servers import HOST, Servers, port_of
from gateway import settings as settings_files
from gateway.compose.embedding import open_embedder
from gateway.compose.filling import ingest_into
from gateway.compose.running import Running, running
from gateway.compose.state import state_folder
from gateway.settings import Settings
from retrieval.embedded import places
from retrieval.embedded.state import Hold
from retrieval.ingest.report import Report

INDEX_WAIT_S: Final = 120.0
_PENDING: Final = "select count(*) from brain.outbox where done_at is null"


class IndexLate(Exception):
    """The index did not catch up with the record of truth in time."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running demo. ``folder`` holds what belongs to it alone (settings, traces)."""

    gateway: Running
    directory: Directory
    folder: Path
    settings_file: Path
    trace_file: Path
    settings: Settings
    portal_ports: Mapping[str, int]
    report: Report
    seconds: Mapping[str, float]


@asynccontextmanager
async def staged(
    state: Path | None, *, fresh: bool = False, tell: Callable[[str], object] = print
) -> AsyncIterator[Stage]:
    """The demo, serving, with the corpus in both stores.

    ``state`` None is this clone's own folder; ``fresh`` removes what an earlier start stored in
    it. ``tell`` is told what differs from the last start without being an error. Raises what
    ``gateway.compose.running`` raises, ``EmbeddedError`` and ``IndexLate``.
    """
    seconds: dict[str, float] = {}
    home = _home(state)
    folder = home / "demo"
    async with AsyncExitStack() as stack:
        stack.enter_context(kept_files.alone(folder))
        if fresh:
            begin_anew(state)
        kept = kept_files.recall(folder)
        servers = stack.enter_context(Servers())
        (folder / "traces.jsonl").unlink(missing_ok=True)
        sockets = _sockets(kept, tell)
        directory = Directory(
            f"http://{HOST}:{port_of(sockets[IDENTITY])}", kept_files.fresh_keys(), kept.secrets
        )
        servers.serve(identity_application(directory), sockets[IDENTITY])
        own = _own_ports(kept, tell)
        kept_files.keep(folder, kept)
        _note_people(home, directory)
        settings_file = _write_settings(folder, state, sockets, own)
        settings = settings_files.load(settings_file, _environment())
        over = overlay.write(folder / "policy", identity_base=_base(sockets[IDENTITY]))

        began = time.monotonic()
        with of_another_version(home):
            gateway = await stack.enter_async_context(running(settings, overlay=over))
        seconds["stores and gateway"] = time.monotonic() - began
        http = stack.enter_context(httpx.Client(trust_env=False, timeout=30.0))
        for portal in PORTALS:
            application = portal_application(
                portal,
                _doorkeeper(portal, gateway, settings, http),
                _backend(portal, gateway, directory, http),
            )
            servers.serve(application, sockets[portal.upstream])

        began = time.monotonic()
        report = await asyncio.to_thread(_ingest, settings, gateway)
        seconds["ingest"] = time.monotonic() - began
        began = time.monotonic()
        await index_caught_up(gateway)
        seconds["index"] = time.monotonic() - began
        yield Stage(
            gateway=gateway,
            directory=directory,
            folder=folder,
            settings_file=settings_file,
            trace_file=folder / "traces.jsonl",
            settings=settings,
            portal_ports={one.upstream: port_of(sockets[one.upstream]) for one in PORTALS},
            report=report,
            seconds=seconds,
        )


def _home(state: Path | None) -> Path:
    """The state folder, made by the module that knows which rights it needs.

    A program that holds it is told of before one of its files is written over.
    """
    if own_stores():
        arranged = places.arrange(state)
        Hold(arranged, parent=os.getpid()).release()  # the stores take it in a moment
        return arranged.state
    home = state or state_folder(Settings())
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home


def _sockets(kept: Kept, tell: Callable[[str], object]) -> dict[str, socket]:
    names = (IDENTITY, *(portal.upstream for portal in PORTALS))
    return {name: listening(kept, name, tell) for name in names}


def _base(found: socket) -> str:
    return f"http://{HOST}:{port_of(found)}"


def _own_ports(kept: Kept, tell: Callable[[str], object]) -> dict[str, int]:
    """Ports for the gateway's two listeners, free a moment ago: it binds them itself."""
    with ExitStack() as probes:
        return {
            name: port_of(probes.enter_context(listening(kept, name, tell)))
            for name in ("public", "admin")
        }


def _note_people(home: Path, directory: Directory) -> None:
    """Write who may ask in the form that ``gateway query --as`` reads."""
    kept_files.write_private(
        home / "identities.json",
        {
            one.name: {
                "token_url": directory.token_url(one.realm),
                "client_id": one.name,
                "client_secret": directory.secret(one.name),
            }
            for one in CLIENTS
        },
    )


def _write_settings(
    folder: Path, state: Path | None, sockets: Mapping[str, socket], own: Mapping[str, int]
) -> Path:
    """The gateway's settings for this demo, as a file that any ``gateway`` command takes."""
    vectors = folder / "vectors.npz"
    if not vectors.exists() or vectors.stat().st_mtime < VECTORS.stat().st_mtime:
        shutil.copyfile(VECTORS, vectors)
    lines = [
        "# Written by the demo at every start.",
        *([f"state = {json.dumps(str(state.absolute()))}"] if state is not None else []),
        "[listen]",
        f'public = "{HOST}:{own["public"]}"',
        f'admin = "{HOST}:{own["admin"]}"',
        "[embedder]",
        f'vector_cache = "{vectors.name}"',
        "[telemetry]",
        'trace_file = "traces.jsonl"',
        "sample_ratio = 1.0",
        "access_log = false",
    ]
    for portal in PORTALS:
        lines += [
            f"[upstreams.{portal.upstream}]",
            f'address = "{_base(sockets[portal.upstream])}"',
        ]
    file = folder / "gateway.toml"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def _environment() -> dict[str, str]:
    """What it says of stores and of where to tell is heard; the rest is not the demo's."""
    stores = ("GATEWAY_DATABASE_", "GATEWAY_QDRANT_")
    heard = (*stores, "GATEWAY_DECISION_LOG_", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return {name: value for name, value in os.environ.items() if name.startswith(heard)}


def _doorkeeper(
    portal: Portal, gateway: Running, settings: Settings, http: httpx.Client
) -> Doorkeeper:
    return Doorkeeper(
        jwks_url=f"{gateway.url}/.well-known/jwks.json",
        gateway_id=settings.gateway_id,
        token_audience=portal.token_audience,
        http=http,
    )


def _backend(portal: Portal, gateway: Running, directory: Directory, http: httpx.Client) -> Backend:
    return Backend(
        gateway_url=gateway.url,
        token_url=directory.token_url(Realm.SERVICES),
        name=portal.client,
        secret=directory.secret(portal.client),
        http=http,
    )


def _ingest(settings: Settings, gateway: Running) -> Report:
    mapping = gateway.snapshot.mappings[overlay.MAPPING]
    # a state of before sources had names goes on as the demo's
    model = open_embedder(settings)
    return ingest_into(gateway.stores, CORPUS, mapping, model, adopt=True)


async def index_caught_up(gateway: Running) -> None:
    """Return when no change waits for the index. Raises IndexLate."""
    ends = time.monotonic() + INDEX_WAIT_S
    async with await psycopg.AsyncConnection.connect(
        gateway.stores.database_url, autocommit=True
    ) as connection:
        while True:
            row = await (await connection.execute(_PENDING)).fetchone()
            if row is not None and row[0] == 0:
                return
            if time.monotonic() > ends:
                raise IndexLate(f"{row[0] if row else '?'} changes still wait for the index")
            await asyncio.sleep(0.05)
