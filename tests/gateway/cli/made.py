"""The command as its users run it: another process, an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. ``lines`` are those of standard error."""

    code: int
    out: str
    lines: list[str]


def gateway(*arguments: str, timeout_s: float = 60, **variables: str) -> Ended:
    """Run ``gateway ARGUMENTS`` without any GATEWAY_ variable of ours but ``variables``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GATEWAY_", "OTEL_"))}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env=kept | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr.splitlines())
