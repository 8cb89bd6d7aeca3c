"""One sealer at a time, and a chain on a real Postgres that shows every touch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from gateway.journal.chain import Break, Head
from gateway.journal.event import EventKind
from gateway.journal.postgres import PostgresJournal
from gateway.journal.reading import Verdict, newest, verify
from gateway.journal.sealer import Sealer, SealerState, seal_once, take_lock
from retrieval.stores.roles import JOURNAL, SEAL, dsn_for
from tests.gateway.journal.made import event, until
from tests.services import Database


async def record(database: Database, count: int) -> None:
    dsn = dsn_for(JOURNAL, database.url, database.secret)
    journal = PostgresJournal(dsn, deadline_ms=20_000)
    await journal.open()
    try:
        for number in range(count):
            kind = EventKind.STALE_INDEX if number % 3 == 2 else EventKind.WRONG_AUDIENCE_RESULT
            await journal.record(event(kind=kind))
    finally:
        await journal.close()


@asynccontextmanager
async def sealing(database: Database) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    dsn = dsn_for(SEAL, database.url, database.secret)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


async def sealed(database: Database, count: int) -> None:
    """Record and chain ``count`` events."""
    await record(database, count)
    async with sealing(database) as connection:
        assert await take_lock(connection)
        assert await seal_once(connection) == count


async def judged(database: Database, kept: Head | None = None) -> Verdict:
    async with sealing(database) as connection:
        return await (verify(connection) if kept is None else verify(connection, kept=kept))


def tamper(database: Database, *statements: str) -> None:
    """What only somebody with all rights can do: switch the triggers off and change rows."""
    with psycopg.connect(database.url) as admin:
        admin.execute("set session_replication_role = replica")
        for statement in statements:
            admin.execute(statement.encode())


def test_events_are_chained_once_and_in_order(database: Database) -> None:
    """A second pass finds nothing new; a later event goes on from the head."""

    async def main() -> None:
        await sealed(database, 5)
        async with sealing(database) as connection:
            assert await take_lock(connection)
            assert await seal_once(connection) == 0
            await record(database, 1)
            assert await seal_once(connection, recent=True) == 1
            verdict = await verify(connection)
            rows = await newest(connection, limit=10)
        assert verdict.intact
        assert (verdict.head.position, verdict.unsealed) == (6, 0)
        assert [row["sealed_at_position"] for row in rows] == [6, 5, 4, 3, 2, 1]

    asyncio.run(main())


def test_unsealed_events_are_counted_and_no_damage(database: Database) -> None:
    """A sealer that is behind is not an attack."""

    async def main() -> None:
        await record(database, 2)
        verdict = await judged(database)
        assert (verdict.intact, verdict.unsealed, verdict.head.position) == (True, 2, 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (
            ["update gate.security_event set unit_count = 2 where id = (select event_id from"
             " gate.security_event_seal where position = 2)"],
            {(Break.EVENT_CHANGED, 2)},
        ),
        (
            ["delete from gate.security_event where id = (select event_id from"
             " gate.security_event_seal where position = 3)"],
            {(Break.EVENT_MISSING, 3)},
        ),
        (
            ["delete from gate.security_event_seal where position = 2"],
            {(Break.SEAL_MISSING, 2)},
        ),
        (
            ["update gate.security_event_seal set position = -1 where position = 2",
             "update gate.security_event_seal set position = 2 where position = 3",
             "update gate.security_event_seal set position = 3 where position = -1"],
            {(Break.SEAL_REORDERED, 2), (Break.SEAL_REORDERED, 3), (Break.SEAL_REORDERED, 4)},
        ),
        (["delete from gate.escalation where queue = 'governance' and event_id = (select event_id"
          " from gate.security_event_seal where position = 1)"], {(Break.ESCALATION_MISSING, 0)}),
        (["delete from gate.consumer_contract_log where event_id = (select event_id"
          " from gate.security_event_seal where position = 1)"], {(Break.ESCALATION_MISSING, 0)}),
    ],
)  # fmt: skip
def test_touched_rows_are_found(
    database: Database, statements: list[str], expected: set[tuple[Break, int]]
) -> None:
    """Edit, deletion and reorder by somebody who may switch triggers off."""

    async def main() -> None:
        await sealed(database, 5)
        assert (await judged(database)).intact
        tamper(database, *statements)
        verdict = await judged(database)
        assert {(finding.what, finding.position) for finding in verdict.findings} == expected

    asyncio.run(main())


def test_cut_tail_is_found_with_the_head_that_was_kept(database: Database) -> None:
    """The newest event removed with everything that belongs to it."""

    async def main() -> None:
        await sealed(database, 4)
        kept = (await judged(database)).head
        tamper(
            database,
            "delete from gate.consumer_contract_log",
            "delete from gate.escalation",
            "delete from gate.security_event where id = (select event_id from"
            " gate.security_event_seal where position = 4)",
            "delete from gate.security_event_seal where position = 4",
        )
        found = {finding.what for finding in (await judged(database, kept)).findings}
        assert Break.HEAD_MISSING in found

    asyncio.run(main())


def test_only_one_session_holds_the_lock(database: Database) -> None:
    """Several gateways, one sealer: the lock goes with the session, however that ends."""

    async def main() -> None:
        async with sealing(database) as second:
            async with sealing(database) as first:
                assert await take_lock(first)
                assert not await take_lock(second)
            # the server hears of a closed session a moment after its client
            await until(lambda: take_lock(second))

    asyncio.run(main())


def test_pass_that_is_cut_off_leaves_whole_seals(database: Database) -> None:
    """Crash in the middle: the pass is undone as one, the next sealer goes on cleanly."""

    async def main() -> None:
        await record(database, 3)
        async with sealing(database) as connection:
            assert await take_lock(connection)
            async with connection.transaction(force_rollback=True):
                assert await seal_once(connection) == 3
        async with sealing(database) as connection:
            assert await take_lock(connection)
            assert await seal_once(connection) == 3
        assert (await judged(database)).intact

    asyncio.run(main())


def test_standby_takes_over_from_a_killed_sealer(database: Database) -> None:
    """Two gateways run; the one that seals loses its session; every event is still sealed."""
    dsn = dsn_for(SEAL, database.url, database.secret)

    async def main() -> None:
        sealers = (Sealer(dsn, period_s=0.02), Sealer(dsn, period_s=0.02))
        for sealer in sealers:
            sealer.start()
        try:

            async def shared() -> bool:
                return {s.state for s in sealers} == {SealerState.SEALING, SealerState.STANDBY}

            await until(shared)
            standby = next(s for s in sealers if s.state is SealerState.STANDBY)
            await record(database, 2)
            with psycopg.connect(database.url, autocommit=True) as admin:
                admin.execute(
                    "select pg_terminate_backend(a.pid) from pg_stat_activity a join pg_locks l"
                    " on l.pid = a.pid and l.locktype = 'advisory' and l.granted"
                    " where a.usename = 'gw_seal' and a.datname = current_database()"
                )
            await record(database, 2)

            async def all_sealed() -> bool:
                verdict = await judged(database)
                return verdict.intact and (verdict.head.position, verdict.unsealed) == (4, 0)

            await until(all_sealed)
            assert standby.state is SealerState.SEALING
        finally:
            for sealer in sealers:
                await sealer.stop()

    asyncio.run(main())


def test_sealer_role_cannot_write_events(database: Database) -> None:
    """Who chains must not be able to invent what is chained."""
    dsn = dsn_for(SEAL, database.url, database.secret)
    with (
        psycopg.connect(dsn) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("insert into gate.security_event (id) values (gen_random_uuid())")
