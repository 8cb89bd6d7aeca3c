"""Follows the database: prepares what is staged, swaps to what is active, tries a candidate.

Theory
    One task looks: it holds the one connection that listens, says what this replica is, and
    compares what it sees with what is held. It never waits for a build, so a swap to something
    prepared happens within the round trip that tells of it. Another task builds whatever the
    first found missing, the most urgent first, and gives a build up that nobody wants any more.

    A request that finds the database ahead swaps by itself (`gateway.app`); the watcher then
    only learns of it.

Laws
    * Whatever fails, the snapshot in force stays: last good. An alarm is one line of the log at
      level ERROR and one count.
    * A number is believed, and remembered, only beside the digest with which it was verified here.
    * Nobody waits for something less urgent: a build makes way for one.
    * What was refused stays refused. What failed for reasons of this machine (``build_*``,
      ``builder_*``) is tried again, but for a staged release: whoever staged it is waiting.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID, uuid4

import psycopg

from gateway.holder import SnapshotHolder
from gateway.reload.builder import Builder
from gateway.reload.job import BuildRefused, Built, Job, RawRelease, Trust
from gateway.reload.retiring import retire, warm
from gateway.reload.sightings import (
    CHANNEL,
    Connection,
    Sighting,
    Told,
    candidate_of,
    leave,
    look,
    release_of,
)
from policies.decision import PolicyDigest
from policies.release import TrustAnchor
from policies.snapshot import Snapshot

LOOK_S: Final = 5.0
"""How often the database is looked at without being called: three looks within ``ALIVE_S``."""
RETRY_S: Final = 30.0
_BACKOFF_S: Final = (0.1, 5.0)
_CONNECT_S: Final = 5
_LOG: Final = logging.getLogger("gateway.reload")


class Memory(Protocol):
    """What this installation accepted before, so that nobody takes it back behind that."""

    def highest(self) -> tuple[int, PolicyDigest] | None: ...

    def remember(self, generation: int, digest: PolicyDigest) -> None:
        """Keep it for the next start. Raises an exception of its own kind."""
        ...


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


class Watcher:
    """Keeps a holder in step with the database until it is stopped.

    ``others`` are the digests that other living replicas said they serve.
    """

    def __init__(
        self,
        holder: SnapshotHolder,
        builder: Builder,
        conninfo: str,
        *,
        anchor: TrustAnchor,
        memory: Memory,
        host: str = "",
        look_s: float = LOOK_S,
    ) -> None:
        self.id: UUID = uuid4()
        self.counts = Reloads()
        self.others: frozenset[str] = frozenset()
        self._holder = holder
        self._builder = builder
        self._conninfo = conninfo
        self._anchor = anchor
        self._memory = memory
        self._host = host[:200]
        self._look_s = look_s
        self._told = Told(holder.current.digest, 0)
        self._verified: set[tuple[int, str]] = set()
        if (highest := memory.highest()) is not None:
            self._verified.add(highest)
        self._in_force_here: dict[int, PolicyDigest] = {}
        self._wake = asyncio.Event()
        self._missing = asyncio.Event()
        self._wanted: tuple[Wanted, ...] = ()
        self._refused: dict[Wanted, float] = {}
        self._building: tuple[Wanted, asyncio.Task[None]] | None = None
        self._reading: Connection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow until ``stop``. The builder is started by the first build at the latest."""
        self._holder.on_advance = self._advanced
        self._tasks = [
            asyncio.create_task(self._follow(), name="policy watch"),
            asyncio.create_task(self._supply(), name="policy builds"),
        ]

    async def stop(self) -> None:
        """End both tasks and take this replica's row away."""
        self._holder.on_advance = None
        tasks = [*self._tasks, *self._leaving]
        self._tasks = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._reading is not None:
            await self._reading.close()
        try:
            async with asyncio.timeout(_CONNECT_S):
                async with await self._connection() as connection:
                    await leave(connection, self.id)
        except (psycopg.Error, OSError, TimeoutError):
            _LOG.warning("policy watch: the row of this replica stays until it is forgotten")

    @property
    def mixed(self) -> bool:
        """Whether living replicas serve different policies, as far as they said so."""
        return bool(self.others - {self._holder.current.digest})

    @property
    def generation(self) -> int:
        """The generation in force here; 0 before the first look."""
        return self._told.generation

    @property
    def building(self) -> Errand | None:
        """What is being built now, if anything."""
        return self._building[0].errand if self._building is not None else None

    # --- looking ----------------------------------------------------------------------------

    async def _follow(self) -> None:
        backoff = _BACKOFF_S[0]
        while True:
            try:
                async with await self._connection() as connection:
                    await connection.execute(f"listen {CHANNEL}".encode())
                    connection.add_notify_handler(lambda _: self._wake.set())
                    while True:
                        await self._looked(connection)
                        backoff = _BACKOFF_S[0]
                        await self._called(connection)
            except (psycopg.Error, OSError) as error:
                self.counts.lost[()] += 1
                _LOG.warning("policy watch: no database (%s), trying again", type(error).__name__)
            await asyncio.sleep(backoff * random.uniform(0.5, 1))  # noqa: S311 - no secret
            backoff = min(backoff * 2, _BACKOFF_S[1])

    async def _looked(self, connection: Connection) -> None:
        """Say what we are and take in what we see, until both agree."""
        while True:
            self._wake.clear()
            told = self._told
            seen = await look(connection, self.id, self._host, told)
            self._take_in(seen)
            if self._told == told:
                return

    async def _called(self, connection: Connection) -> None:
        """Return when the server sent something, somebody here called, or it is time."""
        loop, descriptor = asyncio.get_running_loop(), connection.fileno()
        loop.add_reader(descriptor, self._wake.set)
        try:
            async with asyncio.timeout(self._look_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)

    def _take_in(self, seen: Sighting) -> None:
        self.others = seen.others
        wanted: list[Wanted] = []
        if seen.active is not None:
            generation, digest = seen.active
            held = self._holder.advance(digest)
            if held and self._is_verified(generation, digest):
                self._in_force(generation, digest)
            else:
                wanted.append(Wanted(Errand.ACTIVE, generation, digest))
        if seen.staged is not None:
            wanted += self._staged(Wanted(Errand.STAGED, *seen.staged))
        else:
            self._told = replace(self._told, staged=None, state=None, code=None)
        wanted += self._tried(seen.candidate)
        self._let_go(seen)
        self._want(tuple(wanted))

    def _let_go(self, seen: Sighting) -> None:
        """Of what was prepared for nothing: abandoned, or overtaken."""
        seen_now = {one for one in (seen.active, seen.staged) if one is not None}
        self._verified &= seen_now | {(self._told.generation, self._told.digest)}
        for digest in self._holder.prepared - {one[1] for one in seen_now}:
            if (found := self._holder.forget(digest)) is not None:
                self._aside(retire(found))

    def _is_verified(self, generation: int, digest: str) -> bool:
        return not self._anchor.signed or (generation, digest) in self._verified

    def _in_force(self, generation: int, digest: str) -> None:
        if (self._told.generation, self._told.digest) == (generation, digest):
            return
        self._told = replace(self._told, generation=generation, digest=digest)
        self._in_force_here = {generation: PolicyDigest(digest)}
        if self._anchor.signed:
            self._aside(self._remember(generation, digest))

    def _staged(self, staged: Wanted) -> tuple[Wanted, ...]:
        if self._told.staged == staged.number and self._told.state != "preparing":
            if self._told.state == "prepared" and staged.digest not in self._held():
                self._told = replace(self._told, state="preparing")  # it was let go meanwhile
                return (staged,)
            return ()
        if self._told.staged != staged.number:
            self._told = replace(self._told, staged=staged.number, state="preparing", code=None)
        return (staged,)

    def _held(self) -> frozenset[str]:
        return self._holder.prepared | {self._holder.current.digest}

    def _tried(self, candidate: tuple[int, str] | None) -> tuple[Wanted, ...]:
        held = self._holder.candidate
        if held is not None and (candidate is None or candidate[1] != held.digest):
            self._holder.candidate = None
            self._told = replace(self._told, candidate=None)
            self._aside(retire(held))
            held = None
        if candidate is None or held is not None:
            return ()
        return (Wanted(Errand.CANDIDATE, *candidate),)

    def _want(self, wanted: tuple[Wanted, ...]) -> None:
        self._wanted = wanted
        self._refused = {one: at for one, at in self._refused.items() if one in wanted}
        if self._building is not None:
            building, task = self._building
            if self._makes_way(building) and not task.cancelling():  # once: it tidies up
                task.cancel()
        self._missing.set()

    def _makes_way(self, building: Wanted) -> bool:
        """Whether nobody wants it any more, or something more urgent waits, and not for a second
        try: that would keep from being built what mends the failure."""
        urgent = self._next()
        return building not in self._wanted or (urgent != building and urgent not in self._refused)

    # --- building ---------------------------------------------------------------------------

    async def _supply(self) -> None:
        with suppress(psycopg.Error, OSError):  # tried again when it is needed
            self._reading = await self._connection()
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
        before = self._holder.current
        await warm(snapshot, before)
        self.counts.builds[wanted.errand.value, "ok"] += 1
        self.counts.last = built
        _LOG.info("policy %s: %s of %s is ready", wanted.digest[:12], wanted.errand, wanted.number)
        self._deliver(wanted, snapshot)

    def _deliver(self, wanted: Wanted, snapshot: Snapshot) -> None:
        self._wanted = tuple(one for one in self._wanted if one != wanted)
        if wanted.errand is Errand.CANDIDATE:
            self._holder.candidate = snapshot
            self._told = replace(self._told, candidate=snapshot.digest)
        else:
            self._verified.add((wanted.number, snapshot.digest))
            if snapshot.digest == self._holder.current.digest:  # the same one under a new number
                self._aside(retire(snapshot))
            else:
                self._holder.prepare(snapshot)
        if wanted.errand is Errand.STAGED and self._told.staged == wanted.number:
            self._told = replace(self._told, state="prepared")
        self._wake.set()  # what is active is asked anew, and then comes into force

    async def _built(self, wanted: Wanted) -> tuple[Snapshot, Built]:
        candidate = wanted.errand is Errand.CANDIDATE
        accepted = self._accepted()
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
            self._reading = await self._connection()
        if wanted.errand is Errand.CANDIDATE:
            return await candidate_of(self._reading, wanted.number)
        return await release_of(
            self._reading,
            wanted.number,
            signers=self._anchor.widening_signers,
            accepted=accepted,
        )

    def _accepted(self) -> Mapping[int, PolicyDigest]:
        """What was in force here: in this life, and the highest of earlier ones."""
        found = dict([highest] if (highest := self._memory.highest()) is not None else [])
        return found | self._in_force_here

    def _refuse(self, wanted: Wanted, refused: BuildRefused) -> None:
        """The last good policy stays; what may be better next time is tried again."""
        self.counts.builds[wanted.errand.value, refused.code] += 1
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
        if wanted.errand is Errand.STAGED and self._told.staged == wanted.number:
            self._told = replace(self._told, state="refused", code=refused.code)
        self._wake.set()

    # --- after a swap -----------------------------------------------------------------------

    def _advanced(self, before: Snapshot | None, now: Snapshot) -> None:
        self.counts.swaps[()] += 1
        _LOG.info("policy %s is in force", now.digest[:12])
        if before is not None:
            self._aside(retire(before))
        self._wake.set()

    async def _remember(self, generation: int, digest: str) -> None:
        try:
            await asyncio.to_thread(self._memory.remember, generation, PolicyDigest(digest))
        except Exception as error:  # noqa: BLE001 - it is served all the same, and said aloud
            self.counts.builds["memory", "unwritable"] += 1
            _LOG.error("policy alarm: generation %s is not remembered: %s", generation, error)

    def _aside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _connection(self) -> Connection:
        return await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True, connect_timeout=_CONNECT_S
        )
