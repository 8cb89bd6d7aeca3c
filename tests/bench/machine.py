"""What a figure was measured on, and how much processor time this process and its children took.

Wall times on a shared machine say little about the code; processor time says most of it.
"""

from __future__ import annotations

import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_PROC: Final = Path("/proc")


def described() -> dict[str, Any]:
    return {
        "cpu": _model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "load_average": [round(one, 2) for one in os.getloadavg()],
    }


def line(facts: Mapping[str, Any]) -> str:
    """The hardware line that stands above every table."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, {facts['system']}, "
        f"load average {facts['load_average']}"
    )


def cpu_seconds() -> dict[str, float]:
    """Processor time so far by what spent it: ``python``, ``postgres`` and ``qdrant``.

    This process and all that descend from it, as far as /proc tells; elsewhere this one only.
    Steps of 10 ms for the others, so a figure needs many requests.
    """
    spent = {"python": time.process_time(), "postgres": 0.0, "qdrant": 0.0}
    for pid, command in _descendants():
        ticks = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:15]
        kind = "qdrant" if "qdrant_sidecar" in command else "postgres"
        spent[kind] += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return spent


def _descendants() -> Iterator[tuple[int, str]]:
    if not _PROC.is_dir():
        return
    children: dict[int, list[int]] = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:  # it ended meanwhile
                continue
            children[int(parent)].append(int(entry.name))
    todo = list(children[os.getpid()])
    while todo:
        pid = todo.pop()
        todo += children[pid]
        yield pid, (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def _model() -> str:
    cpuinfo = _PROC / "cpuinfo"
    if cpuinfo.exists():
        for entry in cpuinfo.read_text().splitlines():
            if entry.startswith("model name"):
                return entry.partition(":")[2].strip()
    return platform.processor() or platform.machine()
