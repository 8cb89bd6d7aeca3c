"""The journal on a real Postgres: durable, whole, append-only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from gateway.journal.event import EventKind, JournalUnavailable
from gateway.journal.postgres import PostgresJournal
from gateway.settings import TelemetrySettings
from gateway.telemetry.providers import open_telemetry
from retrieval.stores.roles import JOURNAL, dsn_for
from tests.gateway.journal.made import event
from tests.gateway.telemetry.made import TRACE, Stuck, request
from tests.services import Database

Counts = tuple[int, int, int]


@asynccontextmanager
async def journal_of(
    database: Database, *, deadline_ms: int = 20_000
) -> AsyncIterator[PostgresJournal]:
    dsn = dsn_for(JOURNAL, database.url, database.secret)
    journal = PostgresJournal(dsn, deadline_ms=deadline_ms, pool_max=2)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


def with_journal(database: Database, use: Callable[[PostgresJournal], Awaitable[None]]) -> None:
    async def main() -> None:
        async with journal_of(database) as journal:
            await use(journal)

    asyncio.run(main())


def counts(database: Database) -> Counts:
    """Rows of events, escalations and contract log, as another session sees them."""
    with psycopg.connect(database.url) as admin:
        row = admin.execute(
            "select (select count(*) from gate.security_event),"
            " (select count(*) from gate.escalation),"
            " (select count(*) from gate.consumer_contract_log where event_id is not null)"
        ).fetchone()
    assert row is not None
    return (row[0], row[1], row[2])


def test_wrong_audience_result_is_recorded_with_everything_it_causes(database: Database) -> None:
    """Seed 4.12: governance and risk review hear of it, and the contract log refers to it."""
    made = event()
    with_journal(database, lambda journal: journal.record(made))
    assert counts(database) == (1, 2, 1)
    with psycopg.connect(database.url) as admin:
        queues = admin.execute("select queue from gate.escalation order by queue").fetchall()
        row = admin.execute(
            "select id, unit_ids, unit_count, trace_id, layer, severity from gate.security_event"
        ).fetchone()
    assert queues == [("governance",), ("risk_review",)]
    assert row == (made.event_id, list(made.unit_ids), 1, "a" * 32, "vector_index", "critical")


def test_late_index_is_one_row_and_causes_nothing(database: Database) -> None:
    """Architecture section 6: `stale_index` is a warning, not an escalation."""
    with_journal(database, lambda journal: journal.record(event(kind=EventKind.STALE_INDEX)))
    assert counts(database) == (1, 0, 0)


def test_recording_twice_is_the_same_as_once(database: Database) -> None:
    """The answer to a commit can be lost: the retry must neither fail nor add."""
    made = event()

    async def twice(journal: PostgresJournal) -> None:
        await journal.record(made)
        await journal.record(made)

    with_journal(database, twice)
    assert counts(database) == (1, 2, 1)


@pytest.mark.parametrize("table", ["escalation", "consumer_contract_log"])
def test_failure_of_any_row_leaves_none(database: Database, table: str) -> None:
    """One transaction: an event without its escalation must not exist, nor the reverse."""
    with psycopg.connect(database.url, autocommit=True) as admin:
        admin.execute(f"alter table gate.{table} add check (event_id is null)")

    async def refused(journal: PostgresJournal) -> None:
        with pytest.raises(JournalUnavailable):
            await journal.record(event())

    with_journal(database, refused)
    assert counts(database) == (0, 0, 0)


def test_backend_killed_in_the_middle_leaves_nothing_and_says_so(database: Database) -> None:
    """Fault: the server kills our session after the event's row, before the escalation's."""

    async def main() -> None:
        async with (
            journal_of(database) as journal,
            await psycopg.AsyncConnection.connect(database.url) as blocker,
            await psycopg.AsyncConnection.connect(database.url, autocommit=True) as killer,
        ):
            await blocker.execute("lock table gate.escalation in access exclusive mode")
            recording = asyncio.create_task(journal.record(event()))
            async with asyncio.timeout(20):
                while not recording.done():  # the retry must be killed as well
                    await killer.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where usename = 'gw_journal' and wait_event_type = 'Lock'"
                        " and datname = current_database()"
                    )
            with pytest.raises(JournalUnavailable):
                await recording

    asyncio.run(main())
    assert counts(database) == (0, 0, 0)


def test_full_telemetry_queue_loses_no_event(database: Database) -> None:
    """Issue item 5: behind a collector that hangs the row is still there, before it answers."""
    stuck = Stuck()
    telemetry = open_telemetry(
        TelemetrySettings(access_log=False),
        instance="test",
        span_processors=(BatchSpanProcessor(stuck, max_queue_size=2, max_export_batch_size=1),),
    )
    events = [event(trace_id=TRACE.trace_hex) for _ in range(8)]

    async def handle(journal: PostgresJournal) -> None:
        for made in events:
            await journal.record(made)
            telemetry.recorder.record(request(TRACE, made))

    try:
        with_journal(database, handle)
        assert stuck.entered.wait(5)
        assert not stuck.released.is_set()
        assert counts(database) == (8, 16, 8)
    finally:
        stuck.released.set()
        telemetry.close()


def test_connection_that_broke_between_events_is_replaced(database: Database) -> None:
    """A restarted server must not cost the first event after it."""

    async def main() -> None:
        async with (
            journal_of(database) as journal,
            await psycopg.AsyncConnection.connect(database.url, autocommit=True) as killer,
        ):
            await journal.record(event())
            await killer.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where usename = 'gw_journal' and datname = current_database()"
            )
            await journal.record(event())

    asyncio.run(main())
    assert counts(database) == (2, 4, 2)


def test_event_that_waits_too_long_is_refused(database: Database) -> None:
    """A stuck journal ends in 503 at the deadline, never in a response without a row."""

    async def main() -> None:
        async with (
            journal_of(database, deadline_ms=300) as journal,
            await psycopg.AsyncConnection.connect(database.url) as blocker,
        ):
            await blocker.execute("lock table gate.security_event in access exclusive mode")
            with pytest.raises(JournalUnavailable):
                await journal.record(event())

    asyncio.run(main())
    assert counts(database) == (0, 0, 0)


def test_journal_that_cannot_connect_does_not_open() -> None:
    """Composition learns it at start, with one exception of this house."""

    async def main() -> None:
        journal = PostgresJournal("host=127.0.0.1 port=1 user=x", deadline_ms=300)
        with pytest.raises(JournalUnavailable):
            await journal.open()

    asyncio.run(main())


def test_session_is_synchronous_whatever_the_server_says(database: Database) -> None:
    """The test cluster runs with `synchronous_commit=off`; the journal's sessions may not."""

    async def main() -> None:
        async with (
            journal_of(database) as journal,
            journal._pool.connection() as connection,
        ):
            row = await (await connection.execute("show synchronous_commit")).fetchone()
            assert row == ("on",)

    asyncio.run(main())


def test_journal_says_whether_it_can_write(database: Database) -> None:
    """Readiness asks before a caller finds out."""

    async def main() -> None:
        async with journal_of(database) as journal:
            assert await journal.writable()
            with psycopg.connect(database.url, autocommit=True) as admin:
                admin.execute("revoke insert on gate.escalation from gw_journal")
            assert not await journal.writable()

    asyncio.run(main())


@pytest.mark.parametrize(
    "statement",
    [
        "select 1 from gate.security_event",
        "update gate.security_event set layer = 'x'",
        "delete from gate.security_event",
        "truncate gate.security_event cascade",
        "delete from gate.escalation",
        "insert into gate.security_event_seal values (1, gen_random_uuid(), '', '')",
        "select 1 from brain.unit",
    ],
)
def test_journal_role_may_insert_and_nothing_else(database: Database, statement: str) -> None:
    """A gateway that was taken over cannot change or read what it has recorded."""
    dsn = dsn_for(JOURNAL, database.url, database.secret)
    with (
        psycopg.connect(dsn) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


@pytest.mark.parametrize(
    "statement",
    [
        "update gate.security_event set layer = 'x'",
        "delete from gate.security_event",
        "truncate gate.security_event cascade",
        "delete from gate.escalation",
        "update gate.escalation set queue = 'governance', event_id = gen_random_uuid()",
        "delete from gate.consumer_contract_log",
    ],
)
def test_even_the_owner_is_refused_a_change(database: Database, statement: str) -> None:
    """Append-only is a trigger, too: a slip of an operator changes nothing."""
    with_journal(database, lambda journal: journal.record(event()))
    with (
        psycopg.connect(database.url) as admin,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        admin.execute(statement.encode())


def test_escalation_can_be_closed(database: Database) -> None:
    """The one change that governance makes."""
    with_journal(database, lambda journal: journal.record(event()))
    with psycopg.connect(database.url) as admin:
        closed = admin.execute("update gate.escalation set state = 'closed'").rowcount
    assert closed == 2
