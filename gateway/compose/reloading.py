"""The parts that keep the policy in step with the database: a builder, a watcher, their counts."""

from __future__ import annotations

import logging
import socket
from contextlib import AsyncExitStack

from gateway.compose.database import station_dsn
from gateway.compose.stores import Stores
from gateway.compose.trust import ReleaseMemory, trust_anchor
from gateway.holder import SnapshotHolder
from gateway.reload.builder import Builder
from gateway.reload.job import BuildRefused
from gateway.reload.watcher import Watcher
from gateway.settings import Settings
from gateway.telemetry.counters import Counters
from policies.decision import PolicyDigest
from retrieval.stores.roles import WATCH

_LOG = logging.getLogger(__name__)


class InstalledMemory:
    """The newest release that was accepted here, read once and written when it changes."""

    def __init__(self, settings: Settings) -> None:
        self._file = ReleaseMemory(settings)
        found = self._file.read()
        self._highest = None if found is None else (found.generation, found.digest)

    def highest(self) -> tuple[int, PolicyDigest] | None:
        return self._highest

    def remember(self, generation: int, digest: PolicyDigest) -> None:
        """See ``watcher.Memory``; an older one than before changes nothing."""
        if self._highest is None or generation > self._highest[0]:
            self._highest = generation, digest
            self._file.write(generation, digest)


async def opened(
    stack: AsyncExitStack, settings: Settings, stores: Stores, holder: SnapshotHolder
) -> Watcher:
    """A watcher that follows from now on; builder and watcher are stopped with ``stack``.

    To be called while the process is small: it starts another one. Raises: CannotStart.
    """
    builder = Builder()
    stack.push_async_callback(builder.stop)
    try:
        await builder.start()
    except BuildRefused as error:  # the next build tries again
        _LOG.error("policy alarm: no release can be built: %s", error)
    watcher = Watcher(
        holder,
        builder,
        station_dsn(stores, WATCH),
        anchor=trust_anchor(settings),
        memory=InstalledMemory(settings),
        host=socket.gethostname(),
    )
    watcher.start()
    stack.push_async_callback(watcher.stop)
    return watcher


def publish(watcher: Watcher, counters: Counters) -> None:
    """The counts of reloads, among the others of this process."""
    counters.family(
        "gateway_policy_builds_total",
        "Policies built for a release, by what for and how it ended (`ok` or a code).",
        ("errand", "code"),
        watcher.counts.builds,
    )
    counters.family(
        "gateway_policy_swaps_total",
        "Changes of the policy in force.",
        (),
        watcher.counts.swaps,
    )
    counters.family(
        "gateway_policy_watch_lost_total",
        "Times that the database could not be watched.",
        (),
        watcher.counts.lost,
    )
    counters.gauge(
        "gateway_policy_generation", "Generation in force.", lambda: float(watcher.generation)
    )
    counters.gauge(
        "gateway_policy_mixed",
        "Whether living replicas serve different policies.",
        lambda: float(watcher.mixed),
    )
