"""Load on one proxy and what it cost: wrk on a core of its own, processor time from /proc.

wrk is Debian's C load generator. It shares its core with the upstream, the proxy has the other
one for itself, so that what is counted is what the proxy's processes used and nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROXY_CORE: Final = "1"
LOAD_CORE: Final = "0"
_PROC: Final = Path("/proc")
_LOOK_S: Final = 2.0
_IDLE: Final = 0.04
"""Of a core: the watchers of a gateway that is asked nothing."""
_UNITS_MS: Final = {"us": 0.001, "ms": 1.0, "s": 1_000.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one run of wrk asks. ``script`` is a file of Lua, if tokens rotate."""

    connections: int
    seconds: int
    path: str
    token: str = ""
    script: Path | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """One run: microseconds of processor time a request, requests a second, median wait."""

    requests: int
    cpu_us: float
    per_second: float
    p50_ms: float


def pinned(core: str, *command: str) -> list[str]:
    """The command, on one core only where the machine can pin."""
    found = shutil.which("taskset")
    return [found, "-c", core, *command] if found else list(command)


def measured(pid: int, port: int, load: Load) -> Cost:
    """Ask the proxy whose processes descend from ``pid``.

    Raises: AssertionError when any answer is not a 2xx or a connection failed.
    """
    before = cpu_seconds(pid)
    text = _wrk(port, load)
    spent = cpu_seconds(pid) - before
    assert "Non-2xx" not in text, text
    assert "Socket errors" not in text, text
    requests = int(_found(r"(\d+) requests in", text))
    return Cost(
        requests,
        spent / requests * 1e6,
        float(_found(r"Requests/sec:\s+([\d.]+)", text)),
        _milliseconds(text),
    )


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all that descend from it; 0 for pid 0.

    Threads that ended count; processes that ended do not. In steps of 10 ms.
    """
    if not pid:
        return 0.0
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            children[int(words[1])].append(int(entry.name))
            ticks[int(entry.name)] = int(words[11]) + int(words[12])
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        todo += children[one]
        total += ticks.get(one, 0)
    return total / os.sysconf("SC_CLK_TCK")


def settled(pid: int, *, within_s: float = 60.0) -> None:
    """Wait until the processes below ``pid`` do next to nothing: what they do once after their
    start (a policy is compiled and proven in a child) is no request's cost."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        before = cpu_seconds(pid)
        time.sleep(_LOOK_S)
        if cpu_seconds(pid) - before <= _IDLE * _LOOK_S:
            return


def _wrk(port: int, load: Load) -> str:
    command = ["wrk", "-t1", f"-c{load.connections}", f"-d{load.seconds}s", "--latency"]
    if load.token:
        command += ["-H", f"Authorization: Bearer {load.token}"]
    if load.script is not None:
        command += ["-s", os.fspath(load.script)]
    command.append(f"http://127.0.0.1:{port}{load.path}")
    done = subprocess.run(
        pinned(LOAD_CORE, *command), capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]


def _milliseconds(text: str) -> float:
    match = re.search(r"50%\s+([\d.]+)(us|ms|s)", text)
    assert match is not None, text
    return float(match[1]) * _UNITS_MS[match[2]]
