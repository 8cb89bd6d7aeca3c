"""Follows the database: prepares what is staged, swaps to what is active, tries a candidate.

Theory
    One task looks: it holds the one connection that listens, says what this replica is, and
    compares what it sees with what is held. It never waits for a build, so a swap to something
    prepared happens within the round trip that tells of it. Another task (`supplying`) builds
    whatever the first found missing.

    A request that finds the database ahead swaps by itself (`gateway.app`); the watcher then
    only learns of it.

Laws
    * Whatever fails, the snapshot in force stays: last good. An alarm is one line of the log at
      level ERROR and one count.
    * A number is believed, and remembered, only beside the digest with which it was verified here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID, uuid4

import psycopg

from gateway.holder import SnapshotHolder
from gateway.reload.builder import Builder
from gateway.reload.job import BuildRefused
from gateway.reload.retiring import retire
from gateway.reload.sightings import (
    CHANNEL,
    Connection,
    Sighting,
    Told,
    leave,
    look,
)
from gateway.reload.supplying import Asker, Errand, Reloads, Supplier, Wanted
from policies.decision import PolicyDigest
from policies.release import TrustAnchor
from policies.snapshot import Snapshot

LOOK_S: Final = 5.0
"""How often the database is looked at without being called: three looks within ``ALIVE_S``."""
_BACKOFF_S: Final = (0.1, 5.0)
_CONNECT_S: Final = 5
_LOG: Final = logging.getLogger("gateway.reload")


class Memory(Protocol):
    """What this installation accepted before, so that nobody takes it back behind that."""

    def highest(self) -> tuple[int, PolicyDigest] | None: ...

    def remember(self, generation: int, digest: PolicyDigest) -> None:
        """Keep it for the next start. Raises an exception of its own kind."""
        ...


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
        self._supplier = Supplier(
            holder,
            builder,
            self._connection,
            anchor=anchor,
            asker=Asker(accepted=self._accepted, delivered=self._delivered, refused=self._unmade),
            counts=self.counts,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow until ``stop``. The builder is started by the first build at the latest."""
        self._holder.on_advance = self._advanced
        self._tasks = [
            asyncio.create_task(self._follow(), name="policy watch"),
            asyncio.create_task(self._supplier.run(), name="policy builds"),
        ]

    async def stop(self) -> None:
        """End both tasks and take this replica's row away."""
        self._holder.on_advance = None
        tasks = [*self._tasks, *self._leaving]
        self._tasks = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._supplier.close()
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
        return self._supplier.building

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
        self._supplier.want(tuple(wanted))

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

    # --- what was built ---------------------------------------------------------------------

    def _delivered(self, wanted: Wanted, snapshot: Snapshot) -> None:
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

    def _accepted(self) -> Mapping[int, PolicyDigest]:
        """What was in force here: in this life, and the highest of earlier ones."""
        found = dict([highest] if (highest := self._memory.highest()) is not None else [])
        return found | self._in_force_here

    def _unmade(self, wanted: Wanted, refused: BuildRefused) -> None:
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
