"""A candidate beside the live policy of a running gateway: seen by nobody, told to reviewers.

Provenance: issue 3, item 5.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import psycopg
import pytest

from gateway.cli.app import run
from gateway.shadow import runs
from policies.shadow.disagreement import Point, Way
from policies.shadow.tally import Tally
from retrieval.embedded import Embedded
from retrieval.stores.roles import POLICY, dsn_for
from tests.gateway.admin.asking import operator
from tests.gateway.cli.made import environment
from tests.gateway.shadow.made import EMPLOYEES_READ_NO_DRAFTS, copied
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import WAIT_SECONDS, Composed, composed, unit

ISSUERS = Issuers()
NO_CUSTOMERS = (
    "rules/routes.csv", "p, R-RET-1, customer|partner|", "p, R-RET-1, partner|"
)  # fmt: skip
QUERY = "returning goods"
WORLD = (
    unit("faq/returns", "Returning goods is free of charge."),
    unit("guide/returns", "Returning goods: the clerk's notes.", readiness="approved"),
)


@pytest.fixture
def env(services: Embedded, database: Database, tmp_path: Path) -> dict[str, str]:
    return environment(services, database, tmp_path)


async def heeded(gateway: Composed, digest: str | None) -> None:
    """Return when the gateway says that it compares with this candidate (None: with none)."""
    deadline = time.monotonic() + WAIT_SECONDS
    while await gateway.sql("select candidate_digest from gate.replica") != [(digest,)]:
        assert time.monotonic() < deadline, "the gateway does not heed the candidate"
        await asyncio.sleep(0.05)


async def command(*words: str) -> int:
    return await asyncio.to_thread(run, ["policy", "shadow", *words])


def counted(database: Database) -> Tally:
    """All that the newest run counted, with one live policy."""
    dsn = dsn_for(POLICY, database.url, database.secret)
    with psycopg.connect(dsn, autocommit=True) as connection:
        newest = runs.newest(connection)
    assert newest is not None
    (tally,) = newest.tallies.values()
    return tally


async def told_to_an_operator(
    gateway: Composed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same report for a reviewer without the database's secret, with what is live of it."""
    placed = "select sum(seen) from gate.shadow_count where (outcome, point) = (%s, %s)"
    async with asyncio.timeout(WAIT_SECONDS):  # they are written every few seconds
        while await gateway.sql(placed, "compared", "placement") != [(4,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    token = tmp_path / "token"
    options = ["show", "--format", "json", "--token-file", str(token)]
    token.write_text(operator(ISSUERS))
    assert await command(*options, "--reason", "reading a trial") == 1
    token.write_text(operator(ISSUERS, "policy-reviewer"))
    assert await command(*options) == 2
    capsys.readouterr()
    live = ["--live", "counts", "--reason", "reading a trial"]
    assert await command(*options, *live) == 0
    asked = json.loads(capsys.readouterr().out)
    assert await command("show", "--format", "json") == 0
    assert asked | {"numbers": None} == json.loads(capsys.readouterr().out)
    (lost,) = [one["lost"] for one in asked["numbers"]["profiles"]]
    assert lost["units"] == 1
    rows = await gateway.sql("select action, effect, told, about_digest from gate.admin_access")
    assert [row[:2] for row in rows] == [("read_shadow", "allow"), ("live_counts", "allow")]
    assert rows[0][2:] == (
        {"run": 1, "compared": asked["compared"], "disagreed": asked["disagreed"]},
        asked["candidate"],
    )


def test_a_narrowing_candidate_is_counted_and_changes_no_byte(
    env: dict[str, str],
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Answers before, beside and after it are the same; counts survive the process."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CI", raising=False)  # where more than buckets is refused
    candidate = copied(tmp_path / "candidate", EMPLOYEES_READ_NO_DRAFTS, NO_CUSTOMERS)

    async def scene(gateway: Composed) -> int:
        await gateway.ingest(*WORLD)
        await gateway.indexed()

        async def asked() -> list[object]:
            replies = [await gateway.raw(QUERY, who) for who in ("employee", "customer")]
            assert [reply.status for reply in replies] == [200, 200]
            return [reply.same for reply in replies]

        before = await asked()
        assert await command("start", str(candidate), "--reason", "a trial", "--sample", "2") == 0
        ((digest,),) = await gateway.sql("select digest from gate.policy_candidate")
        await heeded(gateway, digest)
        assert await asked() == before
        assert await asked() == before
        metrics = (await gateway.client.get(f"{gateway.gateway.admin_url}/metrics")).text
        assert (
            'gateway_shadow_disagreements_total{point="unit",direction="closes",'
            'profile="employee"} 2' in metrics
        )
        await told_to_an_operator(gateway, tmp_path, capsys)
        assert await command("stop") == 0
        await heeded(gateway, None)
        assert await asked() == before
        return await gateway.class_of("guide/returns")

    async def main() -> int:
        async with composed(env, ISSUERS, tmp_path) as gateway:
            return await scene(gateway)

    guide = asyncio.run(main())
    tally = counted(database)
    told = {(one.point, one.way, one.profile): times for one, times in tally.seen.items()}
    assert told == {
        (Point.UNIT, Way.CLOSES, "employee"): 2,
        (Point.ROUTE, Way.CLOSES, "customer"): 2,
    }
    assert tally.compared[Point.UNIT, "employee"] == 4
    assert tally.compared[Point.PLACEMENT, "customer"] == 2
    assert tally.faults == 0
    (sample,) = tally.samples[Point.UNIT, Way.CLOSES, "employee"]
    assert (sample.route, sample.class_ids) == ("retrieve", (guide,))
    capsys.readouterr()
    assert run(["policy", "shadow", "show", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rules = {(one["point"], *one["live_rules"]): one["candidate_rules"] for one in report["groups"]}
    assert rules == {("unit", "U-EMP-1"): [], ("route", "R-RET-1"): []}
