"""Stands in for a worker: serves, fails or dies as its order says.

Run as ``python -m tests.gateway.workers.doomed FD`` by a supervisor under test.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from gateway.workers.channel import receive_order, say_failed, say_ready


def main(channel: socket.socket) -> int:
    order = receive_order(channel)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if order == b"fail":
        say_failed(channel, "no_luck", "it cannot serve", "try again")
        return 4
    if order == b"die":
        return 3
    if order == b"deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say_ready(channel, int(receive_order(channel)) if order == b"told" else os.getpid())
    while channel.recv(1):
        pass
    return 0


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        sys.exit(main(inherited))
