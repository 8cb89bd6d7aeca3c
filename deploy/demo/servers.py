"""Small ASGI applications on loopback ports, each in a thread, stopped together."""

from __future__ import annotations

import socket
import threading
from contextlib import AbstractContextManager
from typing import Final

import uvicorn
from starlette.applications import Starlette

from deploy.demo.identity import check_loopback

HOST: Final = "127.0.0.1"
STOP_SECONDS: Final = 10.0
KEEP_SECONDS: Final = 60
"""How long a kept connection may rest: longer than any client here keeps one. Where both give up
after the same time, uvicorn's and httpx' five seconds, a request can meet the end of its
connection."""


def listen(wanted: int, host: str = HOST) -> socket.socket:
    """A listening socket, on ``wanted`` when that port is free, else on any free one.

    Raises NotLoopback: nothing of the demo listens where others could reach it.
    """
    check_loopback(host)
    for port in dict.fromkeys((wanted, 0)):
        found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
            found.listen(64)
        except OSError:
            found.close()
            if port == 0:
                raise
            continue
        return found
    raise AssertionError("port 0 is always tried")


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


class Servers(AbstractContextManager["Servers"]):
    """The demo's own servers. Connections wait in the socket's queue until each has started."""

    def __init__(self) -> None:
        self._running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def serve(self, application: Starlette, listening: socket.socket) -> None:
        """Serve ``application`` on a socket of ``listen`` until the end of the context."""
        check_loopback(listening.getsockname()[0])
        server = uvicorn.Server(
            uvicorn.Config(
                application,
                lifespan="off",
                ws="none",
                access_log=False,
                log_config=None,
                log_level="warning",
                timeout_keep_alive=KEEP_SECONDS,
            )
        )
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="demo-server", daemon=True
        )
        thread.start()
        self._running.append((server, thread))

    def __exit__(self, *_exception: object) -> None:
        for server, _ in self._running:
            server.should_exit = True
        for _, thread in self._running:
            thread.join(STOP_SECONDS)
