"""Where repeated gaps go, what is proposed, and which words may be known."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.stores.roles import SIGNAL, STEWARD, dsn_for
from tests.retrieval.signals.desk import Desk
from tests.retrieval.signals.test_gaps import ABOUT, SEEN
from tests.retrieval.signals.test_ledger import run
from tests.retrieval.world import id_of
from tests.services import Database, VectorService

DESTINATIONS = ("brain.decision_backlog", "brain.segmentation_health", "gate.governance_queue")
ITEM = "select kind, audience, occurrences, subjects, days, state, returned from "


async def proposed(ready: Desk) -> list[tuple[Any, ...]]:
    return await ready.rows(
        "select p.state, w.labels, w.words from brain.thread_proposal p"
        " join brain.proposal_words w using (dedup_key)"
    )


async def close(ready: Desk, outcome: str) -> None:
    """As an owner closes everything that is open."""
    login = dsn_for(STEWARD, ready.stage.database.url, ready.stage.database.secret)
    async with await psycopg.AsyncConnection.connect(login, autocommit=True) as connection:
        for table in DESTINATIONS:
            await connection.execute(
                f"update {table} set state = %s, closed_at = clock_timestamp(), closed_by = 'olga',"
                " close_reason = 'test', done_at = case %s when 'done' then clock_timestamp()"
                " else done_at end where state = 'open'".encode(),
                [outcome, outcome],
            )


def test_a_repeated_gap_is_one_row_in_each_destination_with_its_evidence(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """And one that was met once is in none."""

    async def act(ready: Desk) -> None:
        await ready.ask("lost password")
        for who in ("ann", "bob", "eve"):
            await ready.ask(ABOUT, who)
        for _ in range(2):
            await ready.settle()
        for table in DESTINATIONS:
            assert sorted(await ready.rows(ITEM + table)) == [
                ("missing_thread", "customer", 3, 3, 1, "open", 0),
                ("search_gap", "customer", 3, 3, 1, "open", 0),
            ]
        states = await ready.rows(
            "select state, occurrences from brain.search_gap_signal order by occurrences, kind"
        )
        assert states == [("open", 1), ("routed", 3), ("routed", 3)]

    run(database, sidecar, snapshot, act, SEEN)


def test_days_add_up(database: Database, sidecar: VectorService, snapshot: Snapshot) -> None:
    """Once yesterday and once today is twice."""

    async def act(ready: Desk) -> None:
        await ready.ask(ABOUT)
        await ready.settle()
        await ready.stage.sql(
            "update brain.search_gap_signal set day = day - 1,"
            " first_at = first_at - interval '1 day', last_at = last_at - interval '1 day'"
        )
        await ready.stage.sql(
            "update brain.retrieval_metric_event set noted_at = noted_at - interval '3 days'"
        )
        await ready.ask(ABOUT)
        await ready.settle()
        rows = await ready.rows(ITEM + "brain.decision_backlog where kind = 'missing_thread'")
        assert rows == [("missing_thread", "customer", 2, 1, 2, "open", 0)]

    run(database, sidecar, snapshot, act, SEEN)


def test_what_was_done_and_comes_back_is_opened_again_and_asks_for_a_capability(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        for _ in range(2):
            await ready.ask(ABOUT)
        await ready.settle()
        await close(ready, "done")
        await ready.settle()
        assert {row[5] for row in await ready.rows(ITEM + "brain.decision_backlog")} == {"done"}
        await ready.ask(ABOUT)
        await ready.settle()
        for table in DESTINATIONS:
            rows = await ready.rows(ITEM + f"{table} where kind = 'missing_thread'")
            assert rows == [("missing_thread", "customer", 3, 1, 1, "open", 1)]
        intake = await ready.rows("select kind, returned, state from brain.capability_intake")
        assert sorted(intake) == [("missing_thread", 1, "open"), ("search_gap", 1, "open")]

    run(database, sidecar, snapshot, act, SEEN)


def test_what_owners_rejected_stays_rejected_and_goes_on_counting(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        for _ in range(2):
            await ready.ask(ABOUT)
        await ready.settle()
        await close(ready, "rejected")
        await ready.ask(ABOUT)
        await ready.settle()
        rows = await ready.rows(ITEM + "brain.decision_backlog where kind = 'missing_thread'")
        assert rows == [("missing_thread", "customer", 3, 1, 1, "rejected", 0)]
        assert await ready.rows("select 1 from brain.capability_intake") == []

    run(database, sidecar, snapshot, act, SEEN)


def test_a_proposal_names_vocabulary_at_once_and_other_words_after_enough_subjects(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Three here. One subject may ask as often as it likes, anonymous callers are nobody."""

    async def act(ready: Desk) -> None:
        await ready.stage.sql(
            "insert into brain.label (id, term, visibility, readiness, publication_state,"
            " risk_class, authority, kind, tenant, jurisdiction) values (%s, 'Payroll', 'internal',"
            " 'published', 'published', 'standard', 'enacted', 'other', '*', '*')",
            (id_of("label"),),
        )
        for who in ("ann", "ann", "anonymous", "bob"):
            await ready.ask(ABOUT, who)
        await ready.settle()
        assert await proposed(ready) == [("open", ["Payroll"], [])]
        await ready.ask("calendar of the year", "bob")
        await ready.ask("the calendar please", "eve")
        await ready.settle()
        proposals = await proposed(ready)
        assert ("open", ["Payroll"], ["calendar"]) in proposals
        known = await ready.rows("select word from brain.question_term where word is not null")
        assert known == [("calendar",)]

    run(database, sidecar, snapshot, act, SEEN)


def test_a_word_counts_within_its_window_only(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        for who in ("ann", "bob"):
            await ready.ask(ABOUT, who)
        await ready.classify()
        await ready.stage.sql(
            "update brain.question_term_use set last_at = now() - interval '31 days'"
        )
        await ready.ask(ABOUT, "eve")
        await ready.settle()
        assert await ready.rows("select 1 from brain.question_term where word is not null") == []
        uses = await ready.rows("select count(*) from brain.question_term_use")
        assert uses == [(2,)], "eve's two words; what is older was forgotten"

    run(database, sidecar, snapshot, act, SEEN)


@pytest.mark.parametrize("table", DESTINATIONS)
def test_not_even_the_worker_can_write_a_destination(database: Database, table: str) -> None:
    """Only the function of the database does, and it takes what is absent."""
    login = dsn_for(SIGNAL, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(
            f"insert into {table} (dedup_key, kind, audience, occurrences, subjects, days,"
            " signal_ids, first_at, last_at) values (repeat('a', 64), 'search_gap', 'customer', 1,"
            " 1, 1, '{}', now(), now())".encode()
        )


@pytest.mark.parametrize(
    "statement",
    [
        "select * from brain.unit",
        "select * from brain.pack_delivery",
        "select * from brain.retrieval_metric_event",
        "delete from brain.decision_backlog",
        "update brain.decision_backlog set occurrences = 1",
        "update brain.search_gap_signal set classification = 'absent'",
    ],
)
def test_the_owners_desk_reads_signals_and_closes_them_and_no_more(
    database: Database, statement: str
) -> None:
    login = dsn_for(STEWARD, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_no_reader_of_any_audience_sees_a_signal(database: Database, snapshot: Snapshot) -> None:
    """Tables of signals, as the roles that answer callers."""
    tables = (
        *DESTINATIONS,
        "brain.search_gap_signal",
        "brain.retrieval_metric_event",
        "brain.retrieval_metric_aggregate",
        "brain.thread_proposal",
        "brain.capability_intake",
        "brain.question_term",
        "brain.gap_term",
        "brain.signal_outbox",
        "brain.proposal_words",
    )
    with psycopg.connect(database.url, autocommit=True) as connection:
        for profile in ("gw_p_customer", "gw_p_partner", "gw_p_employee", "gw_p_agent_reader"):
            connection.execute(f"set role {profile}".encode())
            for table in tables:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"select * from {table}".encode())
            connection.execute("reset role")
