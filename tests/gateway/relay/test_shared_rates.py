"""Allowances that gateways share: one for all, by the database's clock, and a silent store.

Provenance: issue 4 part 3 ("Postgres or Redis-compatible storage when shared").
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg import errors

from retrieval.stores.roles import RATE, dsn_for
from tests.gateway.relay.conftest import needs
from tests.services import Database

needs("pyrate_limiter")

from gateway.relay.admission import Allowance  # noqa: E402 - after the look for what it needs
from gateway.relay.shared_rates import SharedRates  # noqa: E402
from tests.gateway.relay.taking import ALLOWANCE  # noqa: E402

ROOT = Path(__file__).parents[3]
SLOW = Allowance(count=1, period_s=3_600, burst=2)


class Clock:
    """Monotonic seconds that stand still until somebody moves them."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def dsn(database: Database) -> str:
    return dsn_for(RATE, database.url, database.secret)


def play(database: Database, scene: Callable[[SharedRates, Clock], Awaitable[None]]) -> None:
    """Run a scene on one gateway's end of the store."""

    async def main() -> None:
        clock = Clock()
        rates = SharedRates(dsn(database), clock=clock)
        await rates.open()
        try:
            await scene(rates, clock)
        finally:
            await rates.close()

    asyncio.run(main())


def moved(database: Database, seconds: float) -> None:
    """Let time pass in the store: every allowance comes back earlier."""
    with psycopg.connect(database.url, autocommit=True) as admin:
        admin.execute("update gate.rate_state set due = due - make_interval(secs => %s)", [seconds])


def seen(database: Database, *ages: str) -> None:
    """Let replicas have said of themselves that they live, so long ago."""
    with psycopg.connect(database.url, autocommit=True) as admin:
        for age in ages:
            admin.execute(
                "insert into gate.replica (id, digest, generation, seen_at)"
                " values (gen_random_uuid(), 'd', 1, now() - %s::interval)",
                [age],
            )


async def until(held: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not held():  # noqa: ASYNC110 - what it does on its own
            await asyncio.sleep(0.02)


def test_two_processes_share_one_allowance(database: Database) -> None:
    """A burst of 20 for 60 requests of two gateways: 20 pass, whoever asked."""
    command = [sys.executable, "-m", "tests.gateway.relay.taking", dsn(database), "r", "30"]
    both = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    passed = [int(one.communicate(timeout=60)[0]) for one in both]
    assert sum(passed) == ALLOWANCE.burst


def test_the_wait_is_told_and_the_next_one_passes_after_it(database: Database) -> None:
    """Two at once, then one an hour; a refusal uses nothing up."""

    async def scene(rates: SharedRates, _clock: Clock) -> None:
        waits = [await rates.take("r", "a", SLOW) for _ in range(4)]
        assert waits[:2] == [0, 0]
        assert all(3_590 < wait <= 3_600 for wait in waits[2:])
        assert await rates.take("r", "b", SLOW) == 0
        assert await rates.take("other", "a", SLOW) == 0
        await asyncio.to_thread(moved, database, 3_600)
        assert await rates.take("r", "a", SLOW) == 0
        assert await rates.take("r", "a", SLOW) > 0
        assert rates.decisions == {("store",): 8, ("alone",): 0}

    play(database, scene)


def test_no_timing_of_requests_gets_more_than_rate_and_burst(database: Database) -> None:
    """GCRA's law, with time made by hand: in any time t at most burst + t * rate pass."""
    routes = iter(range(10_000))

    @settings(max_examples=15)
    @example(gaps=[0, 8_000, 0, 0], count=1, burst=1)
    @given(
        gaps=st.lists(st.integers(0, 9_000), max_size=15),
        count=st.integers(1, 7),
        burst=st.integers(1, 5),
    )
    def law(gaps: list[int], count: int, burst: int) -> None:
        allowance = Allowance(count=count, period_s=7_200, burst=burst)
        route = f"r{next(routes)}"

        async def scene(rates: SharedRates, _clock: Clock) -> None:
            passed, gone_s = 0, 0
            for gap in gaps:
                await asyncio.to_thread(moved, database, gap)
                gone_s += gap
                passed += await rates.take(route, "a", allowance) == 0
                # the seconds that the test itself takes give nothing worth a request
                assert passed <= burst + (gone_s + 60) * count / 7_200
            assert not gaps or passed >= 1

        play(database, scene)

    law()


def test_a_time_ahead_of_any_burst_is_cut_to_one(database: Database) -> None:
    """A server that took over with another clock, or a burst that was made smaller, locks nobody
    out for longer than a burst lasts."""

    async def scene(rates: SharedRates, _clock: Clock) -> None:
        await rates.take("r", "a", SLOW)
        await asyncio.to_thread(moved, database, -1_000_000)
        assert 3_590 < await rates.take("r", "a", SLOW) <= 3_600

    play(database, scene)


def test_a_silent_store_leaves_each_gateway_its_part(database: Database) -> None:
    """A burst of 8 among 4 gateways is 2 for each, and what passed before counts; once the store
    is back it decides again."""
    allowance = Allowance(count=1, period_s=3_600, burst=8)

    async def scene(rates: SharedRates, clock: Clock) -> None:
        await until(lambda: rates.sharing == 4)
        assert await rates.take("r", "a", allowance) == 0
        with psycopg.connect(database.url, autocommit=True) as admin:
            admin.execute("alter table gate.rate_state rename to away")
            waits = [await rates.take("r", "a", allowance) for _ in range(3)]
            assert waits[0] == 0
            assert all(14_000 < wait <= 14_400 for wait in waits[1:])
            assert await rates.take("r", "b", allowance) == 0
            admin.execute("alter table gate.away rename to rate_state")
        assert rates.decisions == {("store",): 1, ("alone",): 4}
        clock.now += 1.5
        assert await rates.take("r", "a", allowance) == 0
        assert rates.decisions["store",] == 2

    seen(database, *["1 second"] * 4)
    play(database, scene)


def test_a_store_that_hangs_costs_a_quarter_of_a_second_once(database: Database) -> None:
    """Whoever asks while it is left alone is not held up at all."""

    async def scene(rates: SharedRates, _clock: Clock) -> None:
        await rates.take("r", "a", SLOW)
        with psycopg.connect(database.url) as admin:
            admin.execute("lock table gate.rate_state in access exclusive mode")
            async with asyncio.timeout(5):
                waits = [await rates.take("r", "b", SLOW) for _ in range(40)]
        assert waits[:2] == [0, 0]
        assert all(wait > 0 for wait in waits[2:])
        assert rates.decisions["alone",] == 40

    play(database, scene)


def test_gateways_are_counted_and_rows_that_say_nothing_go(database: Database) -> None:
    """The divisor is what the replicas say of themselves; a row goes when its time has come."""

    async def main() -> None:
        with psycopg.connect(database.url, autocommit=True) as admin:
            for key, due in (("a", "-1 hour"), ("b", "1 hour")):
                admin.execute(
                    "insert into gate.rate_state values (%s, now() + %s::interval, '0')",
                    [key * 64, due],
                )
            rates = SharedRates(dsn(database), period_s=0.05)
            await rates.open()
            try:
                rows = "select key from gate.rate_state"
                await until(lambda: [*admin.execute(rows)] == [("b" * 64,)])
                assert rates.sharing == 2
            finally:
                await rates.close()

    seen(database, "1 second", "2 seconds", "1 hour")
    asyncio.run(main())


def test_its_login_reads_no_caller_and_nothing_else(database: Database) -> None:
    """What stands in the table is a hash; the role reaches no other table's content."""

    async def scene(rates: SharedRates, _clock: Clock) -> None:
        await rates.take("r", "subject-1", SLOW)

    play(database, scene)
    with psycopg.connect(dsn(database), autocommit=True) as connection:
        rows = connection.execute("select r::text from gate.rate_state r").fetchall()
        assert len(rows) == 1
        assert "subject-1" not in rows[0][0]
        for statement in (
            "select from brain.unit",
            "select host from gate.replica",
            "update gate.replica set seen_at = now()",
            "select from gate.consent",
            "truncate gate.rate_state",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement.encode())
