"""The worker behind signals: classifies questions as they come, and tends the tables.

Laws
    * It runs beside the processes that serve, never in one: what it reads no caller may, and what
      it takes of the processor no caller's answer waits for.
    * Of several, one leads: the lock of the database dies with the leader's session.
    * A pass can be repeated: after a crash the next one finds the same.
    * It may be down. Then gaps of that time stay unclassified, rates get old, and nobody who asks
      notices: partitions stand ready for months. The row that it beats in tells operators.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

import psycopg

from policies.thresholds import Thresholds
from retrieval.embed.ports import Embedder
from retrieval.errors import IndexUnavailable, StoreUnavailable
from retrieval.owners.checking import check_health
from retrieval.owners.checks import Limits
from retrieval.owners.errors import OwnersRefused
from retrieval.settings import ResolutionSettings
from retrieval.signals.classify import Classifier
from retrieval.signals.corpus import Corpus
from retrieval.signals.inquiry import CHANNEL, InquirySeal
from retrieval.signals.left_out import Reason, add_passed_over
from retrieval.signals.settings import MONTHS_AHEAD, SignalSettings
from retrieval.signals.webhook import Webhook
from retrieval.stores.roles import CURATE, METRIC, SIGNAL, WATCH, dsn_for

RETRY_S: Final = 2.0
STANDBY_S: Final = 2.0
INQUIRIES_MAX: Final = 2_000
"""Questions that are looked at between two passes; of a flood the rest stays unclassified."""
BUSY_SHARE: Final = 0.1
"""The most of its time that passes take: counting a million events anew takes seconds."""
BEAT_S: Final = 5.0
QUIET_S: Final = 30.0
"""A worker that gave no sign for so long is down."""
_LATE_S: Final = 60.0
"""How long a pass may take before it is late, if the last one did not take longer."""
CHECK_S: Final = 60.0
"""How often is asked whether a health check of threads is due."""
_SEND_S: Final = 1.0
_STATEMENT_S: Final = 20
_PASS_S: Final = 600
_OUTBOX_DAYS: Final = 30
_LOCK: Final = 0x5167_4A15
_log = logging.getLogger(__name__)

_ACTIVE: Final = "select digest from gate.active_revision"
_LEADS: Final = """
insert into brain.signal_worker as w (beat_at, due_at) values (now(), now() + %(due)s)
on conflict (only_row) do update set beat_at = excluded.beat_at, due_at = excluded.due_at
"""
_BEATS: Final = "update brain.signal_worker set beat_at = now()"
_PASSED: Final = "update brain.signal_worker set due_at = now() + %(due)s"
_STATE: Final = "select gate.signal_state(%(quiet)s)"
_CHECK_DUE: Final = """
select coalesce(max(checked_at) <= now() - make_interval(hours => %(hours)s), true)
from brain.thread_check where source is null
"""
_FORGET_USES: Final = "delete from brain.question_term_use where last_at < now() - %(window)s"
_FORGET_TERMS: Final = """
delete from brain.question_term t
where not exists (select from brain.question_term_use u where u.term_hmac = t.term_hmac)
  and t.word is null
"""
_FORGET_MESSAGES: Final = """
delete from brain.signal_outbox
where state <> 'pending' and made_at < now() - make_interval(days => %(days)s)
"""

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class WorkerState(StrEnum):
    """What a worker is doing: leading, waiting for the lock, or without a database."""

    LEADING = "leading"
    STANDBY = "standby"
    DOWN = "down"


class SignalWorker:
    """One worker. ``base_dsn`` and ``secret`` as for the stores.

    ``policy`` gives the thresholds of the active policy, and is asked when another one became
    active; ``embedder`` gives the model, and is asked by the one that leads. Both may block.
    Raises ValueError for a webhook that it must not use.
    """

    def __init__(
        self,
        base_dsn: str,
        secret: str,
        settings: SignalSettings,
        policy: Callable[[], Thresholds],
        embedder: Callable[[], Embedder],
        resolution: ResolutionSettings | None = None,
    ) -> None:
        self.state = WorkerState.DOWN
        self._signal_dsn: Final = dsn_for(SIGNAL, base_dsn, secret)
        self._metric_dsn: Final = dsn_for(METRIC, base_dsn, secret)
        self._curate_dsn: Final = dsn_for(CURATE, base_dsn, secret)
        self._secret: Final = secret
        self._settings: Final = settings
        self._policy: Final = policy
        self._embedder: Final = embedder
        self._resolution: Final = resolution or ResolutionSettings()
        self._seal: Final = InquirySeal(secret)
        self._webhook: Final = webhook_of(settings)

    async def run(self) -> None:
        """Work until cancelled, reconnecting for ever."""
        try:
            while True:
                try:
                    async with AsyncExitStack() as stack:
                        await self._lead(stack)
                except* (psycopg.Error, StoreUnavailable) as faults:
                    names = {type(one).__name__ for one in faults.exceptions}
                    _log.warning("signals: lost the database: %s", ", ".join(sorted(names)))
                self.state = WorkerState.DOWN
                await asyncio.sleep(RETRY_S)
        finally:
            self.state = WorkerState.DOWN
            if self._webhook is not None:
                await self._webhook.aclose()

    async def _lead(self, stack: AsyncExitStack) -> None:
        leading = await stack.enter_async_context(await _connected(self._signal_dsn, _STATEMENT_S))
        while not await _take_lock(leading):
            self.state = WorkerState.STANDBY
            await asyncio.sleep(STANDBY_S)
        await leading.execute(_LEADS, {"due": timedelta(seconds=_PASS_S)})
        await leading.execute(f"listen {CHANNEL}".encode())
        own = [
            await stack.enter_async_context(await _connected(self._signal_dsn, seconds))
            for seconds in (_STATEMENT_S, _PASS_S, _STATEMENT_S)
        ]
        metric = await stack.enter_async_context(await _connected(self._metric_dsn, _PASS_S))
        corpus = Corpus(own[0], self._resolution, await asyncio.to_thread(self._embedder))
        classifier = Classifier(own[0], corpus, self._settings, self._secret)
        self.state = WorkerState.LEADING
        async with asyncio.TaskGroup() as together:
            together.create_task(self._listen(leading, classifier), name="inquiries")
            together.create_task(self._tend(own[1], metric, classifier), name="passes")
            together.create_task(_beat(own[2], classifier.passed_over), name="heartbeat")
            if self._settings.check_hours:
                together.create_task(self._check(own[2]), name="health checks")
            if self._webhook is not None:
                together.create_task(self._send(self._webhook, own[2]), name="webhook")

    # --- questions ------------------------------------------------------------------------

    async def _listen(self, leading: Connection, classifier: Classifier) -> None:
        looked, since = 0, time.monotonic()
        async for note in leading.notifies():
            if time.monotonic() - since > self._settings.period_s:
                looked, since = 0, time.monotonic()
                classifier.begin_turn()
            if looked == INQUIRIES_MAX:
                classifier.passed_over["turn"] += 1
                continue
            inquiry = self._seal.open(note.payload)
            if inquiry is None:
                _log.warning("signals: a notification that is no inquiry of ours")
                continue
            try:
                looked += await classifier.classify(inquiry)
            except (psycopg.DataError, psycopg.errors.QueryCanceled, IndexUnavailable) as fault:
                # this question alone: it took too long, or holds what nobody here can read
                _log.warning("signals: a question stays unclassified: %s", type(fault).__name__)
            if looked == INQUIRIES_MAX:
                _log.warning("signals: %d questions, the rest of this pass is left out", looked)

    # --- passes ---------------------------------------------------------------------------

    async def _tend(self, own: Connection, metric: Connection, classifier: Classifier) -> None:
        active = ""
        while True:
            row = await (await own.execute(_ACTIVE)).fetchone()
            if row is not None and row[0] != active:
                classifier.thresholds = await asyncio.to_thread(self._policy)
                active = row[0]
            began = time.monotonic()
            await tend(own, metric, self._settings, classifier.thresholds)
            took = time.monotonic() - began
            pause = max(self._settings.period_s, took * (1 / BUSY_SHARE - 1))
            due = timedelta(seconds=pause + max(_LATE_S, 4 * took))
            await own.execute(_PASSED, {"due": due})
            await asyncio.sleep(pause)

    async def _check(self, own: Connection) -> None:
        settings = self._settings
        limits = Limits(timedelta(days=settings.stale_days), settings.units_min, settings.units_max)
        values = {"hours": settings.check_hours}
        while True:
            row = await (await own.execute(_CHECK_DUE, values)).fetchone()
            if row is not None and row[0]:
                try:
                    await asyncio.to_thread(
                        check_health, self._curate_dsn, limits=limits, made_by="schedule"
                    )
                except OwnersRefused as refused:
                    _log.warning("signals: threads were not checked: %s", refused.reason)
            await asyncio.sleep(CHECK_S)

    async def _send(self, webhook: Webhook, own: Connection) -> None:
        while True:
            if not await webhook.send_due(own):
                await asyncio.sleep(_SEND_S)


async def tend(
    own: Connection, metric: Connection, settings: SignalSettings, thresholds: Thresholds
) -> None:
    """One pass: signals, routes, health, rates, partitions, and what is to be forgotten.

    ``own`` is a session of ``gw_signal``, ``metric`` one of ``gw_metric``. Raises psycopg.Error.
    """
    notify = settings.webhook_url is not None
    await own.execute(
        "select brain.note_extra_searches(%s, %s)", [settings.search_again, settings.caught_up]
    )
    await own.execute("select brain.derive_signals(%s)", [settings.units_min])
    await own.execute(
        "select brain.route_signals(%s, %s, %s, %s)",
        [settings.repeated, notify, settings.routed_per_subject, settings.routed_per_audience],
    )
    await own.execute(
        "select brain.judge_threads(%s, %s, %s)",
        [thresholds.subjects_min, settings.window, settings.pause],
    )
    await own.execute(_FORGET_USES, {"window": settings.window})
    await own.execute(_FORGET_TERMS)
    await own.execute(_FORGET_MESSAGES, {"days": _OUTBOX_DAYS})
    await metric.execute("select brain.refresh_metrics()")
    try:
        await keep_partitions(metric, settings)
    except psycopg.errors.LockNotAvailable:
        _log.warning("signals: partitions are in use, the next pass will tend them")


async def _beat(own: Connection, passed_over: Counter[Reason]) -> None:
    while True:
        await own.execute(_BEATS)
        await add_passed_over(own, passed_over)
        await asyncio.sleep(BEAT_S)


async def state_of_signals(base_dsn: str, secret: str) -> str:
    """``ok``, ``signals_behind`` or ``signals_down``, whichever worker leads.

    Raises psycopg.Error. Cost: a connection and one row.
    """
    async with await _connected(dsn_for(WATCH, base_dsn, secret), _STATEMENT_S) as watching:
        cursor = await watching.execute(_STATE, {"quiet": timedelta(seconds=QUIET_S)})
        row = await cursor.fetchone()
    return "signals_down" if row is None else str(row[0])


async def keep_partitions(metric: Connection, settings: SignalSettings) -> None:
    """Makes the next months' partitions; drops what is older than it is kept: gaps, checks."""
    await metric.execute(
        "select brain.keep_partitions(%s, %s, %s)",
        [settings.events_kept_months, settings.deliveries_kept_months, MONTHS_AHEAD],
    )
    await metric.execute("select brain.forget_gaps(%s)", [settings.events_kept_months])
    await metric.execute("select brain.forget_checks(%s)", [settings.events_kept_months])


def webhook_of(settings: SignalSettings) -> Webhook | None:
    """The configured receiver. Raises ValueError for one that must not be used."""
    if settings.webhook_url is None:
        return None
    if settings.webhook_secret is None:
        raise ValueError("has no secret to be signed with")
    return Webhook(
        settings.webhook_url, settings.webhook_secret, timeout_s=settings.webhook_timeout_s
    )


async def _connected(dsn: str, statement_s: int) -> Connection:
    return await psycopg.AsyncConnection.connect(
        dsn,
        autocommit=True,
        connect_timeout=5,
        options=f"-c statement_timeout={statement_s * 1_000}",
    )


async def _take_lock(connection: Connection) -> bool:
    row = await (await connection.execute("select pg_try_advisory_lock(%s)", [_LOCK])).fetchone()
    return row is not None and row[0] is True
