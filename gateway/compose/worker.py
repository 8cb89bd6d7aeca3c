"""``python -m gateway.compose.worker FD``: one worker, started by its supervisor only."""

from __future__ import annotations

import socket
import sys

from gateway.settled import loading

with loading():
    from gateway.compose.working import work

if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        sys.exit(work(inherited))
