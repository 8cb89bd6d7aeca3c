"""A release reaches a running gateway by the commands, and is taken back, without a restart."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from gateway.compose.running import running
from gateway.settings import load
from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from tests.gateway.cli.made import Ended, environment, gateway
from tests.services import Database

pytestmark = pytest.mark.timeout(300)


def test_a_release_is_signed_activated_and_rolled_back_under_a_running_gateway(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Production: two people open, one closes; who serves what is told by the history."""
    env = environment(services, database, tmp_path)
    folder = tmp_path / "policy"
    for part in ("rules", "models", "mappings"):
        shutil.copytree(DEFAULT_FOLDER / part, folder / part)
    made = [gateway("policy", "keygen", one, "--out", f"{tmp_path}/{one}.pem") for one in "ab"]
    keys = [json.loads(one.out) for one in made]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    env |= {
        "GATEWAY_RELEASE_ENVIRONMENT": "production",
        "GATEWAY_RELEASE_KEYS_FILE": f"{tmp_path}/keys.json",
    }
    one, both = ["--key", f"{tmp_path}/a.pem"], [f"--key={tmp_path}/{name}.pem" for name in "ab"]

    def policy(*words: str) -> Ended:
        ended = gateway("policy", *words, **env)
        assert ended.code == 0, ended
        return ended

    refused = gateway("serve", "--no-embedded", **env)
    assert (refused.code, "no_release" in refused.lines[0]) == (4, True)
    policy("approve", str(folder), *both)
    policy("activate", str(folder))

    async def main() -> None:
        async with running(load(None, env), embedded=False) as up:
            first = up.snapshot.digest
            rules = folder / "rules/units.csv"
            kept = [line for line in rules.read_text().split("\n") if "U-CUS-1," not in line]
            rules.write_text("\n".join(kept))
            await asyncio.to_thread(policy, "approve", str(folder), *one)
            told = await asyncio.to_thread(policy, "activate", str(folder))
            assert "replicas: 1 of 1 serve it" in told.out
            assert up.snapshot.digest != first
            assert up.snapshot.grant(["customer"]).plain == ()
            told = await asyncio.to_thread(policy, "rollback", "--reason", "too much", *both)
            assert "replicas: 1 of 1 serve it" in told.out
            assert up.snapshot.digest == first
            history = json.loads((await asyncio.to_thread(policy, "history", "--format=json")).out)
            assert [(r["generation"], r["state"], r["signers"]) for r in history["releases"]] == [
                (3, "active", ["a", "b"]),
                (2, "past", ["a"]),
                (1, "past", ["a", "b"]),
            ]
            assert [(r["digest"], r["generation"]) for r in history["replicas"]] == [(first, 3)]

    asyncio.run(main())
