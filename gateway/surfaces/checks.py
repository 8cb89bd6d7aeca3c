"""What the gateway needs to be ready, as checks that answer with a word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from gateway.egress.registry import Registry, RegistryUnavailable
from gateway.journal.sealer import Sealer, SealerState
from gateway.surfaces.health import OK, Check
from policies.snapshot import Snapshot


class ReportsHealth(Protocol):
    """Retrieval, as far as readiness is concerned: ``postgres`` and ``vectors`` of its report."""

    async def health(self) -> Mapping[str, Any]: ...


class Writable(Protocol):
    """The journal, as far as readiness is concerned."""

    async def writable(self) -> bool: ...


class Snapshots(Protocol):
    """The policy in force here, as far as readiness is concerned."""

    @property
    def current(self) -> Snapshot: ...

    @property
    def prepared(self) -> frozenset[str]: ...


class Replicas(Protocol):
    """The watch over the other replicas, as far as readiness is concerned."""

    @property
    def mixed(self) -> bool: ...


def gateway_checks(
    *,
    snapshots: Snapshots,
    watcher: Replicas,
    registry: Registry,
    retrieval: ReportsHealth,
    journal: Writable,
    sealer: Sealer,
    index_lag_ms: int,
    enforcement: Callable[[], Awaitable[str]],
    signals: Callable[[], Awaitable[str]] | None = None,
) -> tuple[Check, ...]:
    """The checks of a composed gateway: ``policy``, ``database``, ``enforcement`` (what row-level
    security is proven for at start) and ``journal`` are required.

    Without the index threads are served in full, behind it the answers are checked against
    the record of truth, without a sealer events are still durable, replicas that serve
    different policies are in the middle of a change or in want of help, and no answer waits for
    signals (left out where this gateway starts no worker): those degrade only.
    """

    async def policy() -> str:
        try:
            found = await registry.look_up([], subject_id="", purpose="")
        except RegistryUnavailable:
            return "registry_unavailable"
        ready = {snapshots.current.digest, *snapshots.prepared}  # the next request swaps
        return OK if found.digest in ready else "policy_mismatch"

    async def replicas() -> str:
        return "mixed_digests" if watcher.mixed else OK

    async def database() -> str:
        report = await retrieval.health()
        return OK if report["postgres"] == "up" else "database_unavailable"

    async def index() -> str:
        vectors = (await retrieval.health())["vectors"]
        return OK if vectors["qdrant"] == "up" else "index_unavailable"

    async def outbox() -> str:
        vectors = (await retrieval.health())["vectors"]
        if vectors["pending"] < 0:
            return "outbox_unreadable"
        return "index_lagging" if vectors["oldest_s"] * 1_000 > index_lag_ms else OK

    async def writable() -> str:
        return OK if await journal.writable() else "journal_unwritable"

    async def sealing() -> str:
        return "sealer_down" if sealer.state is SealerState.DOWN else OK

    watched = () if signals is None else (Check("signals", signals, required=False),)
    return (
        Check("policy", policy),
        Check("database", database),
        Check("enforcement", enforcement),
        Check("journal", writable),
        Check("index", index, required=False),
        Check("outbox", outbox, required=False),
        Check("sealer", sealing, required=False),
        Check("replicas", replicas, required=False),
        *watched,
    )
