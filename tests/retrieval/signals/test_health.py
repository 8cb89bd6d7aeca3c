"""Feedback changes a thread's health by the rule of architecture section 6, and by no other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest

from policies.snapshot import Snapshot
from retrieval.contract import FeedbackKind
from retrieval.signals.worker import tend
from retrieval.stores.roles import SIGNAL, dsn_for
from tests.retrieval.signals.desk import AGREED, Desk
from tests.retrieval.signals.test_gaps import SEEN
from tests.retrieval.signals.test_ledger import run
from tests.services import Database, VectorService

HEALTH = "select audience, status, subjects from brain.thread_feedback_health"


async def said(
    ready: Desk, kind: FeedbackKind, names: Sequence[str], audience: str = "customer"
) -> None:
    for name in names:
        await ready.say(await ready.ask("refund limits", name, audience), kind, name)


def test_three_subjects_change_it_and_two_do_not_however_often_they_speak(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "ann", "ann", "bob", "bob"])
        await ready.settle()
        assert await ready.rows(HEALTH) == []
        await said(ready, "wrong_thread", ["eve"])
        await ready.settle()
        assert await ready.rows(HEALTH) == [("customer", "noisy_retrieval", 3)]

    run(database, sidecar, snapshot, act, SEEN)


def test_subjects_of_different_audiences_do_not_add_up(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "bob"])
        await said(ready, "noisy_context", ["eve", "max"], "employee")
        await ready.settle()
        assert await ready.rows(HEALTH) == []

    run(database, sidecar, snapshot, act, SEEN)


def test_anonymous_callers_are_nobody(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "bob", "anonymous"])
        await ready.settle()
        assert await ready.rows(HEALTH) == []

    run(database, sidecar, snapshot, act, SEEN)


def test_the_last_word_of_a_subject_counts_and_the_majority_decides(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "bob", "eve"])
        await said(ready, "sufficient", ["ann", "max", "kim", "joe"])
        await ready.settle()
        assert await ready.rows(HEALTH) == [("customer", "healthy", 4)]

    run(database, sidecar, snapshot, act, SEEN)


def test_it_changes_once_per_pause_and_needs_as_many_voices_back(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "bob", "eve"])
        await ready.settle()
        await said(ready, "sufficient", ["ann", "max"])
        await ready.stage.sql(
            "update brain.thread_feedback_health set changed_at = now() - interval '2 days'"
        )
        await ready.settle()
        assert (await ready.rows(HEALTH))[0][1] == "noisy_retrieval", "two came back, not three"
        await said(ready, "sufficient", ["bob", "kim"])
        await ready.stage.sql("update brain.thread_feedback_health set changed_at = now()")
        await ready.settle()
        assert (await ready.rows(HEALTH))[0][1] == "noisy_retrieval", "the pause is not over"
        await ready.stage.sql(
            "update brain.thread_feedback_health set changed_at = now() - interval '2 days'"
        )
        await ready.settle()
        assert await ready.rows(HEALTH) == [("customer", "healthy", 4)]

    run(database, sidecar, snapshot, act, SEEN)


def test_what_nobody_says_any_more_is_forgotten(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "bob", "eve"])
        await ready.settle()
        later = ready.settings.window + timedelta(days=1)
        await ready.stage.sql(
            "update brain.thread_feedback_health set changed_at = changed_at - %s", (later,)
        )
        await ready.stage.sql(
            "update brain.retrieval_metric_event set noted_at = noted_at - %s", (later,)
        )
        await tend(ready.own, ready.metric, ready.settings, AGREED)
        assert await ready.rows(HEALTH) == []

    run(database, sidecar, snapshot, act, SEEN)


def test_one_subject_alone_never_decides(database: Database) -> None:
    login = dsn_for(SIGNAL, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InvalidParameterValue),
    ):
        connection.execute("select brain.judge_threads(1, '30 days', '1 day')")
