"""Runs and counts in a real database, written and read by the stations that do it in service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from gateway.decisions.facts import PerClass
from gateway.shadow import runs
from gateway.shadow.keeping import ShadowKeeper
from gateway.shadow.observer import Shadow
from gateway.shadow.results import NotACandidate
from gateway.shadow.runs import AlreadyRunning
from policies.files import PolicyFiles
from policies.release.artefact import contents_of
from policies.shadow.disagreement import Point, Way
from policies.shadow.tally import Tally
from policies.snapshot import Snapshot, load
from retrieval.stores.roles import POLICY, WATCH, dsn_for
from tests.gateway.shadow.made import (
    EMPLOYEES_READ_NO_DRAFTS,
    Held,
    class_id,
    copied,
    request,
)
from tests.services import Database


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("narrower"), EMPLOYEES_READ_NO_DRAFTS)


@pytest.fixture(scope="module")
def files(folder: Path) -> PolicyFiles:
    return contents_of(folder)


@pytest.fixture(scope="module")
def narrower(folder: Path) -> Snapshot:
    return load(folder)


@contextmanager
def login(database: Database, role: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn(database, role), autocommit=True) as connection:
        yield connection


def dsn(database: Database, role: str) -> str:
    return dsn_for(role, database.url, database.secret)


def begun(database: Database, files: PolicyFiles, *, sample: int = 5) -> int:
    with login(database, POLICY) as connection:
        return runs.begin(
            connection, files=files, sample=sample, started_by="tests", reason="because"
        )


def counted(connection: psycopg.Connection[Any], run: int) -> Mapping[str, Tally]:
    """What stands in the database of this run."""
    found = runs.newest(connection)
    assert found is not None
    assert found.run.run == run
    return found.tallies


def busy(snapshot: Snapshot, narrower: Snapshot, routes: tuple[str, ...] = ("retrieve",)) -> Shadow:
    """A shadow that saw one request per route, each with two drafts that the candidate closes."""
    shadow = Shadow(Held(narrower))
    shown = {(class_id(snapshot, readiness="approved"), False): PerClass(allowed=2)}
    for route in routes:
        facts = request(snapshot, shown)
        shadow.observe(facts, route=route, method="POST")
    return shadow


def test_gateways_read_the_candidate_that_was_begun(database: Database, files: PolicyFiles) -> None:
    """With the bytes and the digest of its folder; one that ended is gone for them."""
    with login(database, POLICY) as listener:
        listener.execute("listen gw_policy")
        run = begun(database, files)
        (heard,) = [*listener.notifies(timeout=5, stop_after=1)]
    assert heard.payload == "candidate"
    with login(database, WATCH) as gateway:
        found = runs.running(gateway)
    assert found is not None
    assert (found.run, found.digest, found.reason) == (run, files.digest, "because")
    assert found.files.contents == files.contents
    with login(database, POLICY) as connection:
        assert runs.end(connection, ended_by="tests") == (run, files.digest)
        assert runs.end(connection, ended_by="tests") is None
        newest = runs.newest(connection)
    with login(database, WATCH) as gateway:
        assert runs.running(gateway) is None
    assert newest is not None
    assert newest.run.ended_at is not None


def test_one_candidate_at_a_time(database: Database, files: PolicyFiles) -> None:
    begun(database, files)
    with pytest.raises(AlreadyRunning, match="started by tests"):
        begun(database, files)


def test_a_candidate_that_is_not_what_its_digest_says_is_not_compared(
    database: Database, files: PolicyFiles
) -> None:
    """Whoever can write rows past the triggers still cannot pass another policy off."""
    begun(database, files)
    with psycopg.connect(database.url, autocommit=True) as admin:
        admin.execute("set session_replication_role = replica")
        admin.execute(
            "update gate.policy_candidate set files = jsonb_set(files, '{rules/units.csv}',"
            " to_jsonb(files ->> 'rules/units.csv' || '# more'))"
        )
    with login(database, POLICY) as connection, pytest.raises(NotACandidate):
        runs.running(connection)


def test_counts_of_several_gateways_add_up(
    database: Database, snapshot: Snapshot, narrower: Snapshot, files: PolicyFiles
) -> None:
    run = begun(database, files)

    async def flushed() -> None:
        shadows = [busy(snapshot, narrower) for _ in range(3)]
        keepers = [ShadowKeeper(one, dsn(database, WATCH)) for one in shadows]
        assert all(await asyncio.gather(*(keeper.flush() for keeper in keepers)))
        assert [one.take() for one in shadows] == [{}, {}, {}]

    asyncio.run(flushed())
    with login(database, POLICY) as connection:
        ((live, tally),) = counted(connection, run).items()
    assert live == snapshot.digest
    (one,) = tally.seen
    assert (one.point, one.way, one.profile) == (Point.UNIT, Way.CLOSES, "employee")
    assert one.class_id == class_id(snapshot, readiness="approved")
    assert tally.seen[one] == 6
    assert tally.compared == {
        (Point.PLACEMENT, "employee"): 3, (Point.ROUTE, "employee"): 3,
        (Point.UNIT, "employee"): 6,
    }  # fmt: skip


def test_samples_are_kept_up_to_the_number_that_was_asked_for(
    database: Database, snapshot: Snapshot, narrower: Snapshot, files: PolicyFiles
) -> None:
    """However many gateways offer some, and never the same one twice."""
    run = begun(database, files, sample=2)

    async def flushed() -> None:
        for _ in range(2):
            shadow = busy(snapshot, narrower, ("retrieve", "pack", "unit"))
            await ShadowKeeper(shadow, dsn(database, WATCH)).flush()

    asyncio.run(flushed())
    with login(database, POLICY) as connection:
        (tally,) = counted(connection, run).values()
    kept = tally.samples[Point.UNIT, Way.CLOSES, "employee"]
    assert len({one.route for one in kept}) == len(kept) == 2


def test_counts_wait_for_a_database_that_is_away(
    database: Database, snapshot: Snapshot, narrower: Snapshot, files: PolicyFiles
) -> None:
    """And the end of the process writes what is left."""
    run = begun(database, files)
    shadow = busy(snapshot, narrower)

    async def main() -> None:
        away = ShadowKeeper(shadow, "host=127.0.0.1 port=1 dbname=none user=none")
        assert not await away.flush()
        keeper = ShadowKeeper(shadow, dsn(database, WATCH), period_s=3_600)
        keeper.start()
        await keeper.stop()

    asyncio.run(main())
    with login(database, POLICY) as connection:
        (tally,) = counted(connection, run).values()
    assert tally.seen.total() == 2


def test_a_flusher_takes_counts_away_while_requests_go_on(
    database: Database, snapshot: Snapshot, narrower: Snapshot, files: PolicyFiles
) -> None:
    run = begun(database, files)
    shadow = busy(snapshot, narrower)

    async def main() -> None:
        keeper = ShadowKeeper(shadow, dsn(database, WATCH), period_s=0.01)
        keeper.start()
        async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as admin:
            while not await (await admin.execute("select 1 from gate.shadow_count")).fetchone():
                pass
        shadow.observe(request(snapshot), route="retrieve", method="POST")
        await keeper.stop()

    asyncio.run(main())
    with login(database, POLICY) as connection:
        (tally,) = counted(connection, run).values()
    assert tally.compared[Point.PLACEMENT, "employee"] == 2


def test_counts_of_a_candidate_that_nobody_began_are_dropped(
    database: Database, snapshot: Snapshot, narrower: Snapshot
) -> None:
    """Nothing to add them to; they are not tried for ever."""
    shadow = busy(snapshot, narrower)
    assert asyncio.run(ShadowKeeper(shadow, dsn(database, WATCH)).flush())
    assert shadow.take() == {}


FORBIDDEN = [
    (WATCH, "insert into gate.policy_candidate (digest, files, sample, started_by,"
            " reason) values (repeat('0', 64), '{}', 0, 'x', 'x')"),
    (WATCH, "update gate.policy_candidate set ended_at = now(), ended_by = 'x'"),
    (WATCH, "delete from gate.shadow_count"),
    (WATCH, "update gate.shadow_count set profile = 'x'"),
    (POLICY, "update gate.policy_candidate set files = '{}'"),
    (POLICY, "delete from gate.policy_candidate"),
    (POLICY, "update gate.shadow_count set seen = 1"),
    (POLICY, "insert into gate.shadow_sample select * from gate.shadow_sample"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "statement"), FORBIDDEN)
def test_a_station_cannot_do_what_is_not_its_own(
    database: Database, files: PolicyFiles, role: str, statement: str
) -> None:
    """Gateways start no candidate and change no count but by adding; nobody alters one."""
    begun(database, files)
    with login(database, role) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(statement.encode())


@pytest.mark.parametrize(
    "change",
    ["reason = 'another'", "ended_at = null, ended_by = null", "sample = 1"],
)
def test_an_ended_run_stays_as_it_was(database: Database, files: PolicyFiles, change: str) -> None:
    begun(database, files)
    with login(database, POLICY) as connection:
        runs.end(connection, ended_by="tests")
    with (
        psycopg.connect(database.url, autocommit=True) as admin,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        admin.execute(f"update gate.policy_candidate set {change}".encode())
