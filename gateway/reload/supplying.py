"""Builds what is wanted and not held: the most urgent first, as long as somebody wants it.

Laws
    * Nobody waits for something less urgent: a build makes way for one.
    * What was refused stays refused. What failed for reasons of this machine (``build_*``,
      ``builder_*``) is tried again, but for a staged release: whoever staged it is waiting.
    * A refusal is one line of the log at level ERROR and one count; nothing else changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import psycopg

from gateway.holder import SnapshotHolder
from gateway.reload.builder import Builder
from gateway.reload.job import BuildRefused, Built, Job, RawRelease, Trust
from gateway.reload.retiring import warm
from gateway.reload.sightings import Connection, candidate_of, release_of
from policies.decision import PolicyDigest
from policies.release import TrustAnchor
from policies.snapshot import Snapshot

RETRY_S: Final = 30.0
_LOG: Final = logging.getLogger("gateway.reload")


class Errand(StrEnum):
    """What a build is for, the most urgent first."""

    ACTIVE = "active"
    STAGED = "staged"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something that should be held and is not."""

    errand: Errand
    number: int
    digest: str


@dataclass(slots=True)
class Reloads:
    """Counts for the metrics: (errand, code) of builds, ``ok`` for one that succeeded; swaps."""

    builds: Counter[tuple[str, ...]] = field(default_factory=Counter)
    swaps: Counter[tuple[str, ...]] = field(default_factory=Counter)
    lost: Counter[tuple[str, ...]] = field(default_factory=Counter)
    last: Built | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who wants things built: what it has accepted by now, and how it is told of the outcome."""

    accepted: Callable[[], Mapping[int, PolicyDigest]]
    delivered: Callable[[Wanted, Snapshot], None]
    refused: Callable[[Wanted, BuildRefused], None]


class Supplier:
    """One build at a time, for one asker; it reads over a connection that it keeps."""

    def __init__(
        self,
        holder: SnapshotHolder,
        builder: Builder,
        connect: Callable[[], Awaitable[Connection]],
        *,
        anchor: TrustAnchor,
        asker: Asker,
        counts: Reloads,
    ) -> None:
        self._holder = holder
        self._builder = builder
        self._connect = connect
        self._anchor = anchor
        self._asker = asker
        self._counts = counts
        self._missing = asyncio.Event()
        self._wanted: tuple[Wanted, ...] = ()
        self._refused: dict[Wanted, float] = {}
        self._building: tuple[Wanted, asyncio.Task[None]] | None = None
        self._reading: Connection | None = None

    @property
    def building(self) -> Errand | None:
        """What is being built now, if anything."""
        return self._building[0].errand if self._building is not None else None

    def want(self, wanted: tuple[Wanted, ...]) -> None:
        """From now on this is wanted and nothing else."""
        self._wanted = wanted
        self._refused = {one: at for one, at in self._refused.items() if one in wanted}
        if self._building is not None:
            building, task = self._building
            if self._makes_way(building) and not task.cancelling():  # once: it tidies up
                task.cancel()
        self._missing.set()

    async def run(self) -> None:
        """Build what is wanted until cancelled."""
        with suppress(psycopg.Error, OSError):  # tried again when it is needed
            self._reading = await self._connect()
        while True:
            wanted = self._next()
            if wanted is None:
                self._missing.clear()
                await self._missing.wait()
                continue
            task = asyncio.create_task(self._supplied(wanted))
            self._building = (wanted, task)
            try:
                await asyncio.wait({task})
            finally:
                self._building = None
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._refuse(wanted, BuildRefused("build_failed", type(error).__name__))

    async def close(self) -> None:
        """Let go of the connection; ``run`` has ended."""
        if self._reading is not None:
            await self._reading.close()

    def _makes_way(self, building: Wanted) -> bool:
        """Whether nobody wants it any more, or something more urgent waits, and not for a second
        try: that would keep from being built what mends the failure."""
        urgent = self._next()
        return building not in self._wanted or (urgent != building and urgent not in self._refused)

    def _next(self) -> Wanted | None:
        now = asyncio.get_running_loop().time()
        return next((one for one in self._wanted if self._refused.get(one, now) <= now), None)

    async def _supplied(self, wanted: Wanted) -> None:
        try:
            snapshot, built = await self._built(wanted)
            if snapshot.digest != wanted.digest:
                raise BuildRefused("hash_mismatch", "the digest is not that of the files")
        except BuildRefused as refused:
            self._refuse(wanted, refused)
            return
        await warm(snapshot, self._holder.current)
        self._counts.builds[wanted.errand.value, "ok"] += 1
        self._counts.last = built
        _LOG.info("policy %s: %s of %s is ready", wanted.digest[:12], wanted.errand, wanted.number)
        self._wanted = tuple(one for one in self._wanted if one != wanted)
        self._asker.delivered(wanted, snapshot)

    async def _built(self, wanted: Wanted) -> tuple[Snapshot, Built]:
        candidate = wanted.errand is Errand.CANDIDATE
        accepted = self._asker.accepted()
        try:
            try:
                chain = await self._stored(wanted, accepted)
            except psycopg.OperationalError:  # a kept connection that was cut; a fresh one tells
                self._reading = None
                chain = await self._stored(wanted, accepted)
        except (psycopg.Error, OSError) as error:
            raise BuildRefused("build_unread", type(error).__name__) from error
        if not chain:
            raise BuildRefused("release_missing", "the database has no files of it")
        if candidate or not self._anchor.signed:
            trust = Trust.of(TrustAnchor.unsigned(self._anchor.environment))
            return await self._builder.build(Job(chain[0], trust, newer_than=0))
        highest = max((one for one in accepted if one != wanted.number), default=0)
        return await self._builder.build(
            Job(chain[0], Trust.of(self._anchor), highest, chain[1:], accepted)
        )

    async def _stored(
        self, wanted: Wanted, accepted: Mapping[int, PolicyDigest]
    ) -> tuple[RawRelease, ...]:
        """What the database holds of it, over a connection that is kept: to log in costs 3 ms."""
        if self._reading is None or self._reading.closed:
            self._reading = await self._connect()
        if wanted.errand is Errand.CANDIDATE:
            return await candidate_of(self._reading, wanted.number)
        return await release_of(
            self._reading,
            wanted.number,
            signers=self._anchor.widening_signers,
            accepted=accepted,
        )

    def _refuse(self, wanted: Wanted, refused: BuildRefused) -> None:
        """The last good policy stays; what may be better next time is tried again."""
        self._counts.builds[wanted.errand.value, refused.code] += 1
        _LOG.error(
            "policy alarm: %s %s (%s) is not taken, %s stays: %s",
            wanted.errand,
            wanted.number,
            wanted.digest[:12],
            self._holder.current.digest[:12],
            refused,
        )
        again = refused.code.startswith(("build_", "builder_"))
        loop = asyncio.get_running_loop()
        self._refused[wanted] = loop.time() + RETRY_S if again else float("inf")
        if again:
            loop.call_later(RETRY_S, self._missing.set)
        self._asker.refused(wanted, refused)
