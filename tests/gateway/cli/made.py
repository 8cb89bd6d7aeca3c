"""The command as its users run it: another process, an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from retrieval.embedded import Embedded
from tests.services import Database

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. ``lines`` are those of standard error."""

    code: int
    out: str
    lines: list[str]


def clean() -> dict[str, str]:
    """Our environment without what would configure a gateway, and with this clone's code."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GATEWAY_", "OTEL_"))}
    return kept | {"PYTHONPATH": str(ROOT)}


def gateway(*arguments: str, **variables: str) -> Ended:
    """Run ``gateway ARGUMENTS`` without any GATEWAY_ variable of ours but ``variables``."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env=clean() | variables,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr.splitlines())


def environment(services: Embedded, database: Database, tmp_path: Path) -> dict[str, str]:
    """A database, a collection and a state folder of this test's own."""
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[qdrant]\ncollection = "t-{uuid4().hex[:12]}"\n[telemetry]\naccess_log = false\n'
    )
    return {
        "GATEWAY_CONFIG": str(config),
        "GATEWAY_DATABASE_URL": database.url,
        "GATEWAY_DATABASE_SECRET": database.secret,
        "GATEWAY_QDRANT_URL": services.qdrant_url,
        "GATEWAY_QDRANT_API_KEY": services.qdrant_api_key,
        "GATEWAY_EMBEDDER": "hashing-64",
        "GATEWAY_LISTEN": "127.0.0.1:0",
        "GATEWAY_ADMIN_LISTEN": "127.0.0.1:0",
        "GATEWAY_STATE": str(tmp_path / "state"),
    }
