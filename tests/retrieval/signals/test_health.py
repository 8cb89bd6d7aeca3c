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
from tests.retrieval.signals.test_routing import close
from tests.services import Database, VectorService

HEALTH = "select audience, status, subjects from brain.thread_feedback_health"


async def said(
    ready: Desk, kind: FeedbackKind, names: Sequence[str], audience: str = "customer"
) -> None:
    """Each asks for the thread by name, which is served whatever its health."""
    for name in names:
        answer = await ready.ask("refund limits", name, audience, thread="t:refunds")
        await ready.say(answer, kind, name, audience)


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


def test_an_anonymous_voice_keeps_no_verdict_alive(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "bob", "eve"])
        await ready.settle()
        later = ready.settings.window + timedelta(days=1)
        for shifted in (
            "update brain.thread_feedback_health set changed_at = changed_at - %s",
            "update brain.retrieval_metric_event set noted_at = noted_at - %s",
        ):
            await ready.stage.sql(shifted, (later,))
        await said(ready, "noisy_context", ["anonymous"])
        await tend(ready.own, ready.metric, ready.settings, AGREED)
        assert await ready.rows(HEALTH) == []

    run(database, sidecar, snapshot, act, SEEN)


def test_feedback_counts_for_the_audience_that_the_pack_was_made_for(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """What somebody saw in another role says nothing of what this audience is shown."""

    async def act(ready: Desk) -> None:
        for name in ("ann", "bob", "eve"):
            answer = await ready.ask("refund limits", name, "employee", thread="t:refunds")
            await ready.say(answer, "noisy_context", name, "customer")
        await ready.settle()
        assert await ready.rows(HEALTH) == [("employee", "noisy_retrieval", 3)]

    run(database, sidecar, snapshot, act, SEEN)


def test_an_owner_who_mended_a_thread_gives_it_another_hearing(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """What was said before does not count again, not even when the item comes back."""

    async def act(ready: Desk) -> None:
        await said(ready, "noisy_context", ["ann", "bob", "eve"])
        for _ in range(2):
            await ready.settle()
        assert await ready.rows(HEALTH) == [("customer", "noisy_retrieval", 3)]
        await close(ready, "done")
        await ready.settle()
        assert await ready.rows(HEALTH) == []
        await said(ready, "noisy_context", ["max"])
        await ready.settle()
        reopened = await ready.rows(
            "select state, returned from brain.segmentation_health where kind = 'noisy_thread'"
        )
        assert reopened == [("open", 1)]
        assert await ready.rows(HEALTH) == []

    run(database, sidecar, snapshot, act, SEEN)


def test_feedback_takes_a_thread_out_of_answers_for_its_own_audience_only(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """The ranking reads it: positive recursion, seed 4.14."""

    async def mode(ready: Desk, audience: str) -> str:
        answer = await ready.ask("refund limits", "kim", audience)
        assert answer.response is not None
        return answer.response.mode

    async def act(ready: Desk) -> None:
        assert await mode(ready, "customer") == "single"
        await said(ready, "noisy_context", ["ann", "bob", "eve"])
        await ready.settle()
        assert await mode(ready, "customer") == "fallback"
        assert await mode(ready, "employee") == "single"

    run(database, sidecar, snapshot, act, SEEN)


def test_one_subject_alone_never_decides(database: Database) -> None:
    login = dsn_for(SIGNAL, database.url, database.secret)
    with (
        psycopg.connect(login, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InvalidParameterValue),
    ):
        connection.execute("select brain.judge_threads(1, '30 days', '1 day')")
