"""The whole gateway, composed on real stores: it starts, says how it is, and ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from gateway.cli.app import run
from gateway.compose.failure import CannotStart
from gateway.compose.running import Running, running
from gateway.compose.state import running_address
from gateway.server import PortTaken
from gateway.settings import load
from retrieval.embedded import Embedded
from tests.gateway.cli.made import Ended, environment
from tests.services import Database


@pytest.fixture
def env(services: Embedded, database: Database, tmp_path: Path) -> dict[str, str]:
    return environment(services, database, tmp_path)


@asynccontextmanager
async def up(env: dict[str, str]) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    async with (
        running(load(None, env), embedded=False) as gateway,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        yield gateway, client


async def ready(client: httpx.AsyncClient, gateway: Running) -> tuple[int, dict[str, Any]]:
    response = await client.get(f"{gateway.admin_url}/readyz")
    found: dict[str, Any] = response.json()
    return response.status_code, found


def test_signals_that_nobody_works_on_degrade_and_the_gateway_stays_ready(
    env: dict[str, str], database: Database
) -> None:
    async def main() -> None:
        async with up(env) as (gateway, client):
            found = await ready(client, gateway)
            assert (found[0], found[1]["status"]) == (200, "degraded")
            assert found[1]["checks"]["signals"] == "signals_down"
            with psycopg.connect(database.url) as connection:
                connection.execute(
                    "insert into brain.signal_worker (beat_at, due_at)"
                    " values (now(), now() + interval '1 hour')"
                )
            found = await ready(client, gateway)
            assert found[1]["status"] == "ready"
            assert found[1]["checks"]["signals"] == "ok"

    asyncio.run(main())


def test_a_gateway_that_starts_no_worker_watches_none(env: dict[str, str]) -> None:
    with Path(env["GATEWAY_CONFIG"]).open("a") as config:
        config.write("[signals]\nworker = false\n")

    async def main() -> None:
        async with up(env) as (gateway, client):
            assert "signals" not in (await ready(client, gateway))[1]["checks"]

    asyncio.run(main())


def test_a_selftest_of_the_gateway_itself_is_none_of_a_proxy(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be refused as a proxy is, and nothing would be shown of any."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    async def main() -> None:
        async with up(env) as (gateway, _):
            for address in (gateway.url, gateway.url.replace("127.0.0.1", "localhost")):
                assert await asyncio.to_thread(run, ["selftest", "--through", address]) == 2
                out, err = capsys.readouterr()
                assert out == ""
                assert err.startswith("gateway: error: not_a_proxy: ")

    asyncio.run(main())


def test_gateway_starts_on_empty_stores_and_is_ready(
    services: Embedded, empty_database: Database, tmp_path: Path
) -> None:
    """Schema, roles, activation and proof happen at start; both listeners answer."""
    env = environment(services, empty_database, tmp_path)

    async def main() -> None:
        async with up(env) as (gateway, client):
            status, found = await ready(client, gateway)
            assert (status, found["checks"]["policy"]) == (200, "ok")
            response = await client.get(f"{gateway.url}/v1/scope")
            assert response.status_code == 401
            assert response.json()["code"] == "unauthenticated"
            assert (
                'code="unauthenticated"' in (await client.get(f"{gateway.admin_url}/metrics")).text
            )
            assert (await client.get(f"{gateway.url}/readyz")).status_code != 200

    asyncio.run(main())


def test_running_gateway_is_found_and_keeps_its_port(env: dict[str, str]) -> None:
    """The state file names the address and goes with the gateway; a taken port starts nothing."""
    settings = load(None, env)

    async def main() -> None:
        async with up(env) as (gateway, _):
            assert running_address(settings) == gateway.url
            taken = gateway.url.removeprefix("http://")
            with pytest.raises(PortTaken):
                async with up(env | {"GATEWAY_LISTEN": taken}):
                    pass
            assert running_address(settings) == gateway.url
        assert running_address(settings) == f"http://{settings.listen.public}"
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(gateway.url)
        await asyncio.wait_for(gateway.wait(), 5)

    asyncio.run(main())


def test_second_start_finds_everything_as_it_was(env: dict[str, str]) -> None:
    """Idempotent: the same revision, the same key for assertions."""
    keys: list[str] = []

    async def once() -> None:
        async with up(env) as (gateway, client):
            keys.append((await client.get(f"{gateway.url}/.well-known/jwks.json")).text)

    asyncio.run(once())
    asyncio.run(once())
    assert keys[0] == keys[1]
    assert "kid" in keys[0]
    with psycopg.connect(env["GATEWAY_DATABASE_URL"]) as admin:
        row = admin.execute("select max(generation) from gate.active_revision").fetchone()
    assert row == (1,)
    key = Path(env["GATEWAY_STATE"]) / "assertion-key.pem"
    assert key.stat().st_mode & 0o777 == 0o600


def test_readiness_follows_policy_and_journal(env: dict[str, str]) -> None:
    """Another revision active, or a journal that refuses rows: no traffic should come."""

    async def main() -> None:
        async with up(env) as (gateway, client):
            with psycopg.connect(env["GATEWAY_DATABASE_URL"]) as admin:
                admin.execute("update gate.active_revision set digest = repeat('0', 64)")
                admin.execute("revoke insert on gate.security_event from gw_journal")
            status, found = await ready(client, gateway)
            assert (status, found["status"]) == (503, "not_ready")
            assert found["checks"]["policy"] == "policy_mismatch"
            assert found["checks"]["journal"] == "journal_unwritable"

    asyncio.run(main())


def test_lost_row_level_security_stops_the_start(env: dict[str, str]) -> None:
    """The database must enforce what is believed of it, or nothing is served."""

    async def main() -> None:
        async with up(env):
            pass
        with psycopg.connect(env["GATEWAY_DATABASE_URL"]) as admin:
            admin.execute("alter table brain.unit disable row level security")
        with pytest.raises(CannotStart) as caught:
            async with up(env):
                pass
        assert caught.value.code == "not_enforced"
        assert "brain.unit" in caught.value.reason

    asyncio.run(main())


def test_index_that_is_down_degrades_and_does_not_stop_the_start(env: dict[str, str]) -> None:
    """Threads are served in full without it; what needs vectors is refused per request."""

    async def main() -> None:
        async with up(env | {"GATEWAY_QDRANT_URL": "http://127.0.0.1:1"}) as (gateway, client):
            status, found = await ready(client, gateway)
            assert (status, found["status"]) == (200, "degraded")
            assert found["checks"]["index"] == "index_unavailable"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"GATEWAY_EMBEDDER": "no-such"}, "embedder_unusable"),
        ({"GATEWAY_ASSERTION_KEY_FILE": "/nowhere/key.pem"}, "key_unusable"),
        ({"GATEWAY_QDRANT_URL": ""}, "store_missing"),
    ],
)
def test_what_is_missing_ends_the_start_with_a_code(
    env: dict[str, str], change: dict[str, str], code: str
) -> None:
    """One exception with code, reason and remedy; what was opened is closed again."""

    async def main() -> None:
        with pytest.raises(CannotStart) as caught:
            async with up(env | change):
                pass
        assert caught.value.code == code
        assert caught.value.remedy

    asyncio.run(main())


def test_events_and_consents_are_managed_from_the_command_line(
    env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`ingest`, `consent` and `events` against the configured database, gateway or not."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    def command(*arguments: str) -> Ended:
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return Ended(code, out, err.splitlines())

    record = {
        "sort": "unit",
        "address": "handbook/leave",
        "title": "Leave",
        "body": "Leave is asked for in writing.",
        "visibility": "employee",
        "readiness": "approved",
        "publication_state": "unpublished",
        "risk_class": "high",
        "authority": "enacted",
        "kind": "policy",
        "lifecycle_stage": "law",
        "tenant": "*",
        "jurisdiction": "*",
    }
    source = tmp_path / "units.jsonl"
    source.write_text(json.dumps(record) + "\n")
    loaded = command("ingest", str(source), "--mapping", "native", "--json")
    assert loaded.code == 0, loaded
    assert json.loads(loaded.out)["accepted"] == 1
    again = command("ingest", str(source), "--mapping", "native", "--json")
    assert json.loads(again.out)["unchanged"] == 1
    other = command("ingest", str(source), "--mapping", "native", "--source", "other", "--json")
    (reason,) = json.loads(other.out)["reasons"]
    assert (other.code, reason["reason"]) == (6, "belongs to another source")
    nameless = command("ingest", str(source), "--mapping", "native", "--source", "No Name")
    assert (nameless.code, len(nameless.lines)) == (2, 1)

    asked = ["--purpose", "audit", "--audience", "employee", "--subject", "s.1", "--ttl", "1h"]
    asked += ["--approver", "alice", "--unit", "handbook/leave", "--approver-role"]
    refused = command("consent", "grant", *asked, "role:nobody")
    assert (refused.code, len(refused.lines)) == (1, 1)
    granted = command("consent", "grant", *asked, "role:risk_officer")
    assert granted.code == 0, granted
    (row,) = map(json.loads, command("consent", "list", "--json").out.splitlines())
    assert (row["subject_id"], row["approver"]) == ("s.1", "alice")
    assert command("consent", "revoke", row["id"]).code == 0
    assert command("consent", "list").out == "no consents\n"

    assert command("events").out == "no security events\n"
    assert "intact: 0 events" in command("events", "verify").out
