"""A port for a process that takes a number and no socket."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CHOICE: Final = random.SystemRandom()  # the tests' own order has a seed, the same in each process


def free_port() -> int:
    """A port that nothing listens on and that the kernel gives to nobody who asks for any, where
    its range leaves some: one of its own choice may be a connection's by the time the process
    listens."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    while True:
        port = _CHOICE.randrange(10_000, first if first > 12_000 else 32_768)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
