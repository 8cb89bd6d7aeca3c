"""What is missing among signals, at the doors of the metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from gateway.compose.left_out import SignalsLeftOut
from gateway.telemetry.counters import Counters
from retrieval.embedded import Embedded
from retrieval.signals.left_out import LeftOut
from tests.gateway.cli.made import environment
from tests.gateway.test_compose import up
from tests.services import Database

ROOM = "gateway_signal_gaps_without_room"
PASSED = "gateway_signal_questions_passed_over_total"


def told(counters: Counters) -> list[str]:
    """The samples of both families."""
    return [one for one in counters.text().splitlines() if one.startswith((ROOM, PASSED))]


async def _away() -> LeftOut:
    raise psycopg.OperationalError("away")


def test_what_was_read_last_is_told_and_nothing_while_it_cannot_be_read() -> None:
    counters, one = Counters(), SignalsLeftOut()
    one.publish(counters)
    found = [LeftOut({"customer": 7}, {"subject": 3, "turn": 0}), LeftOut({}, {"turn": 1})]

    async def next_one() -> LeftOut:
        return found.pop(0)

    async def main() -> None:
        assert told(counters) == []
        await one.look(next_one)
        assert told(counters) == [
            f'{PASSED}{{reason="subject"}} 3',
            f'{PASSED}{{reason="turn"}} 0',
            f'{ROOM}{{audience="customer"}} 7',
        ]
        await one.look(next_one)
        assert told(counters) == [f'{PASSED}{{reason="turn"}} 1']
        await one.look(_away)
        assert told(counters) == []

    asyncio.run(main())


def test_a_database_that_is_away_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    one = SignalsLeftOut()

    async def main() -> None:
        for _ in range(3):
            await one.look(_away)

    asyncio.run(main())
    assert caplog.text.count("OperationalError") == 1
    assert "away" not in caplog.text


@pytest.mark.parametrize("worker", [True, False])
def test_a_gateway_that_starts_a_worker_tells_what_the_database_says(
    worker: bool, services: Embedded, database: Database, tmp_path: Path
) -> None:
    env = environment(services, database, tmp_path)
    with Path(env["GATEWAY_CONFIG"]).open("a") as config:
        config.write(f"[signals]\nworker = {str(worker).lower()}\n")
    with psycopg.connect(database.url) as connection:
        connection.execute(
            "insert into brain.signal_overflow"
            " select (now() at time zone 'utc')::date, 'partner', 4"
        )

    async def main() -> None:
        async with up(env) as (gateway, client):
            async with asyncio.timeout(30):
                while True:
                    text = (await client.get(f"{gateway.admin_url}/metrics")).text
                    if not worker or ROOM + "{" in text:
                        break
        assert (f'{ROOM}{{audience="partner"}} 4' in text) is worker
        assert (ROOM in text) is worker

    asyncio.run(main())
