"""What is known of a process that we may or may not have started.

A zombie counts as dead here: where process 1 does not reap (many containers) a killed
postmaster stays in the process table, and ``kill(pid, 0)`` calls it alive.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def command_of(pid: int) -> str | None:
    """The command line of a living process; None when there is none, or only a zombie."""
    if Path("/proc/self/stat").exists():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return None
        return None if state in "ZX" else raw.replace(b"\0", b" ").decode(errors="replace").strip()
    found = subprocess.run(
        ["ps", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    status, _, command = found.stdout.strip().partition(" ")
    return None if not status or status.startswith("Z") else command.strip()


def exists(pid: int) -> bool:
    """Whether the number is in the process table, zombies and foreign processes included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def die_with_parent(sent: signal.Signals) -> Callable[[], None] | None:
    """A ``preexec_fn`` after which the child gets ``sent`` when the process that started it dies.

    A second line behind the pipes, for the supervisor's own sudden death; Linux only.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, int(sent), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return ask


def stop_process(
    process: subprocess.Popen[bytes],
    *,
    first: signal.Signals,
    then: signal.Signals,
    patience_s: float,
) -> None:
    """Ask a child to end, insist after ``patience_s``, and reap it. Safe on a dead child."""
    for sent in (first, then, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(sent)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
