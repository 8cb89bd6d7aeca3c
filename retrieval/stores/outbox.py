"""The worker that carries changes from the record of truth to the vector index, and then makes
anew what threads are found by (``thread_index``).

Laws
    * An outbox row names a unit, never a content: what is written is the unit's truth as it
      stands when the row is worked on, so late and repeated rows do no harm.
    * A row is done only after the index acknowledged (at least once; every write is
      idempotent). A crash anywhere leaves the row pending.
    * One writer at a time, by a lock that lives as long as the transaction. Behind it stands
      the fence of the index: an older revision never replaces a newer one. Behind that, the
      sweep: what the index holds is compared with the truth, and differences are mended.
    * A deleted unit's point is removed and cannot come back: nothing but truth is written.

Every failure of a store is retried for ever with growing pauses and is visible in ``lag``.
Until a change arrives, hydration and the egress guard refuse what the index still offers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from retrieval.embed.ports import Embedder, unit_text
from retrieval.embed.quantise import pack
from retrieval.errors import IndexUnavailable, RetrievalError, Store, StoreUnavailable
from retrieval.stores import thread_index
from retrieval.stores.compare import stretches
from retrieval.stores.points import IndexLabel, IndexPoint
from retrieval.stores.qdrant import QdrantIndex

log = logging.getLogger(__name__)

LOCK: Final = 0x67_77_5F_69_6E_64_65_78  # "gw_index"
_BATCH: Final = 256
_BATCH_DOUBTFUL_MIN: Final = 16
_POLL_S: Final = 0.25
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 30.0
_SWEEP_EVERY_S: Final = 900.0

_CLAIM: Final = """
    select seq, unit_id, op from brain.outbox
    where done_at is null and unit_id <> all (%s::uuid[]) order by seq limit %s"""
_DONE: Final = "update brain.outbox set done_at = clock_timestamp() where seq = any (%s)"
# A unit whose current revision is not there has no content to be found by: not live yet.
_TRUTH: Final = """
    select u.id, u.current_revision, u.class_id, u.tenant, u.jurisdiction,
           r.title, r.body, e.vector, r.lexical_terms, r.lexical_weights
    from brain.unit u
    join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision
    left join brain.embedding e
           on e.unit_id = u.id and e.revision = u.current_revision and e.model = %s
    where u.id = any (%s) and u.deleted_at is null"""
_KEEP: Final = """
    insert into brain.embedding (unit_id, revision, model, vector) values (%s, %s, %s, %s)
    on conflict do nothing"""
_LAG: Final = """
    select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8
    from brain.outbox where done_at is null"""
_PURGE: Final = "delete from brain.outbox where done_at < now() - interval '1 day'"
_TRY_LOCK: Final = "select pg_try_advisory_xact_lock(%s)"


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the index is behind. ``oldest_s`` is 0 when nothing is pending.

    ``set_aside`` counts units that failed alone while the index was up; they are retried.
    """

    pending: int
    oldest_s: float
    set_aside: int
    last_failure: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found: points without a live unit (removed), and units to write anew."""

    orphans: int
    mended: int


@dataclass(frozen=True, slots=True)
class _Truth:
    label: IndexLabel
    title: str
    body: str
    vector: bytes | None
    terms: Sequence[int]
    weights: Sequence[float]


class OutboxWorker:
    """One per process is enough; several take turns.

    ``conninfo`` logs in as gw_index. Vectors that ingest did not leave are made here.
    """

    def __init__(self, conninfo: str, index: QdrantIndex, embedder: Embedder) -> None:
        self._conninfo: Final = conninfo
        self._index: Final = index
        self._embedder: Final = embedder
        self._awake: Final = asyncio.Event()
        self._doubtful: set[UUID] = set()
        self._aside: dict[UUID, float] = {}
        self._last_failure = ""

    def wake(self) -> None:
        """Says that there is work, so that it does not wait for the next look."""
        self._awake.set()

    async def run(self) -> None:
        """Works until cancelled. Starts with a sweep, because an index may have been lost."""
        pause, sweep_at = _PAUSE_FIRST_S, 0.0
        while True:
            try:
                # one session for as long as all is well: a new one four times a second would
                # cost both sides more than the looks themselves
                async with self._connected() as connection:
                    while True:
                        await self._refresh(connection)  # also while the index is down
                        if time.monotonic() >= sweep_at:
                            await self._index.ensure()
                            await self._sweep(connection)
                            await connection.rollback()  # lets go of the lock
                            sweep_at = time.monotonic() + _SWEEP_EVERY_S
                        busy = await self._batch(connection)
                        await connection.rollback()
                        pause, self._last_failure = _PAUSE_FIRST_S, ""
                        if not busy:
                            await self._rest()
            except RetrievalError as fault:
                if str(fault) != self._last_failure:
                    log.warning("index not updated, will retry: %s", fault)
                self._last_failure = str(fault)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _PAUSE_MAX_S)

    async def drain(self) -> int:
        """Works until nothing is pending; returns how many rows were done here.

        Raises ``IndexUnavailable`` or ``StoreUnavailable`` at the first failure: whoever waits
        for the index should hear that it does not answer.
        """
        done = 0
        while True:
            worked = await self.step()
            done += worked
            if worked:
                continue
            lag = await self.lag()
            if lag.pending == 0 and not self._doubtful:
                async with self._connected() as connection:
                    await self._refresh(connection)
                    if not await thread_index.waiting(connection, self._embedder.name):
                        return done
            if lag.set_aside and lag.pending:
                raise IndexUnavailable(Store.QDRANT, self._last_failure)
            await asyncio.sleep(_POLL_S)

    async def step(self) -> int:
        """One batch: returns how many rows it finished, 0 when there was nothing to do or
        another worker is at it."""
        async with self._connected() as connection:
            return await self._batch(connection)

    async def sweep(self) -> Swept:
        """Compares all of the index with the truth, removes orphans, writes anew what differs.

        Cost: a scroll over the collection and one look at every unit; no vectors move unless
        they have to.
        """
        async with self._connected() as connection:
            return await self._sweep(connection)

    async def lag(self) -> Lag:
        async with self._connected() as connection:
            cursor = await connection.execute(_LAG)
            pending, oldest_s = (await cursor.fetchall())[0]
        return Lag(
            pending=pending,
            oldest_s=oldest_s,
            set_aside=len(self._aside),
            last_failure=self._last_failure,
        )

    # --- inside -------------------------------------------------------------------------

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that is rolled back unless ``commit`` was called."""
        try:
            connection = await AsyncConnection.connect(self._conninfo)
            try:
                yield connection
            finally:
                await connection.close()
        except psycopg.Error as fault:
            raise StoreUnavailable(Store.POSTGRES, type(fault).__name__) from fault

    async def _refresh(self, connection: AsyncConnection) -> None:
        while await thread_index.refresh(connection, self._embedder.name):
            await connection.commit()
        await connection.rollback()

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._awake.wait(), _POLL_S)
        except TimeoutError:
            return
        finally:
            self._awake.clear()

    async def _batch(self, connection: AsyncConnection) -> int:
        if not await self._locked(connection):
            return 0
        waiting = [unit for unit, until in self._aside.items() if until > time.monotonic()]
        cursor = await connection.execute(_CLAIM, (waiting, _BATCH))
        rows = await cursor.fetchall()
        ops: defaultdict[UUID, set[str]] = defaultdict(set)
        for _, unit_id, op in rows:
            ops[unit_id].add(op)
        # A new index makes every unit doubtful and pending at once: each is written once, and
        # however much is pending, some doubtful ones get their turn.
        room = max(_BATCH - len(ops), _BATCH_DOUBTFUL_MIN)
        doubtful = {unit_id for unit_id in ops if unit_id in self._doubtful}
        extra = self._taken(room) - ops.keys()
        doubtful |= extra
        for unit_id in doubtful:
            ops[unit_id].add("content")
        if not ops:
            return 0
        self._doubtful |= doubtful  # until the index took them
        failed = await self._apply_or_set_aside(connection, ops)
        self._doubtful -= doubtful - failed
        done = [seq for seq, unit_id, _ in rows if unit_id not in failed]
        await connection.execute(_DONE, (done,))
        await connection.commit()
        return len(done) + len(extra - failed)

    def _taken(self, room: int) -> set[UUID]:
        """Some of the doubtful units; a set of a million is not walked for them."""
        return {self._doubtful.pop() for _ in range(min(room, len(self._doubtful)))}

    async def _apply_or_set_aside(
        self, connection: AsyncConnection, ops: dict[UUID, set[str]]
    ) -> set[UUID]:
        """Applies a batch; when the index is up but refuses it, unit by unit, so that one bad
        unit does not hold up the others. Returns the units that failed alone."""
        try:
            await self._apply(connection, ops)
        except IndexUnavailable as fault:
            await self._index.ping()
            failed: set[UUID] = set()
            for unit_id, wanted in ops.items():
                try:
                    await self._apply(connection, {unit_id: wanted})
                except IndexUnavailable as alone:
                    log.error("unit %s cannot be indexed, set aside: %s", unit_id, alone)
                    failed.add(unit_id)
                    self._last_failure = str(alone)
                    self._aside[unit_id] = time.monotonic() + _PAUSE_MAX_S
            if len(failed) == len(ops) > 1:  # the index is up but takes nothing: its fault
                self._forgive(failed)
                raise fault
            self._forgive(ops.keys() - failed)
            return failed
        self._forgive(ops.keys())
        return set()

    def _forgive(self, units: Iterable[UUID]) -> None:
        for unit_id in units:
            self._aside.pop(unit_id, None)

    async def _apply(self, connection: AsyncConnection, ops: dict[UUID, set[str]]) -> None:
        truth = await self._truth(connection, ops.keys())
        held = await self._index.held(truth.keys())
        relabel, whole = [], []
        for unit_id, unit in truth.items():
            known = held.get(unit_id)
            same = known is not None and known.revision == unit.label.revision
            if same and ops[unit_id] == {"label"}:
                relabel.append(unit.label)
            else:
                whole.append(unit)
        await self._index.relabel(relabel)
        await self._index.upsert(await self._points(connection, whole))
        await self._index.delete(ops.keys() - truth.keys())

    async def _truth(
        self, connection: AsyncConnection, unit_ids: Collection[UUID]
    ) -> dict[UUID, _Truth]:
        """The live units among these, as they stand now."""
        cursor = await connection.execute(_TRUTH, (self._embedder.name, list(unit_ids)))
        found: dict[UUID, _Truth] = {}
        async for row in cursor:
            unit_id, revision, class_id, tenant, jurisdiction = row[:5]
            label = IndexLabel(unit_id, revision, class_id, tenant, jurisdiction)
            found[unit_id] = _Truth(label, *row[5:])
        return found

    async def _points(
        self, connection: AsyncConnection, units: Sequence[_Truth]
    ) -> list[IndexPoint]:
        bare = [unit for unit in units if unit.vector is None]
        fresh: dict[UUID, bytes] = {}
        if bare:
            rows = await asyncio.to_thread(self._embed, bare)
            fresh = {unit.label.unit_id: row for unit, row in zip(bare, rows, strict=True)}
            for unit in bare:
                label = unit.label
                await connection.execute(
                    _KEEP,
                    (label.unit_id, label.revision, self._embedder.name, fresh[label.unit_id]),
                )
        return [
            IndexPoint(
                unit.label,
                unit.vector if unit.vector is not None else fresh[unit.label.unit_id],
                unit.terms,
                unit.weights,
            )
            for unit in units
        ]

    def _embed(self, units: Sequence[_Truth]) -> list[bytes]:
        try:
            return [
                pack(row)
                for row in self._embedder.embed([unit_text(u.title, u.body) for u in units])
            ]
        except (ValueError, RuntimeError, MemoryError) as fault:
            raise IndexUnavailable(Store.EMBEDDER, type(fault).__name__) from fault

    async def _locked(self, connection: AsyncConnection) -> bool:
        cursor = await connection.execute(_TRY_LOCK, (LOCK,))
        row = await cursor.fetchone()
        return row is not None and row[0] is True

    async def _sweep(self, connection: AsyncConnection) -> Swept:
        """Between two stretches changes are carried as ever: nothing waits for a sweep."""
        orphans = mended = 0
        if not await self._locked(connection):
            return Swept(0, 0)
        await thread_index.distrust(connection, self._embedder.name)
        await connection.execute(_PURGE)
        async for stretch in stretches(connection, self._index):
            gone, differing = stretch.orphans(), stretch.differing()
            await self._index.delete([*gone, *stretch.ahead()])
            self._doubtful.update(differing)
            orphans += len(gone)
            mended += len(differing)
            await connection.commit()
            await self._batch(connection)
            await connection.rollback()
            if not await self._locked(connection):  # another worker's turn: it sweeps by itself
                break
        return Swept(orphans, mended)
