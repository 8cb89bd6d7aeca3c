"""``python -m gateway.compose.signaller FD``: the signal worker, started by its gateway only."""

from __future__ import annotations

import socket
import sys

from gateway.settled import loading

with loading():
    from gateway.compose.signalling import work

if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        sys.exit(work(inherited))
