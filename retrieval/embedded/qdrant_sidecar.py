"""``python -m retrieval.embedded.qdrant_sidecar``: the embedded vector engine's process.

Its settings are one JSON line on standard input: ``folder``, ``host`` (loopback only),
``port`` (0 = any free one; a taken one is replaced), ``api_key``. It answers with one line
on standard output, ``{"port": n}`` or an error (code, reason, remedy), serves, and ends when
standard input closes. What was acknowledged survives a kill: the engine writes it ahead.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from retrieval.embedded.errors import EmbeddedError
from retrieval.embedded.sidecar.app import Sidecar
from retrieval.embedded.sidecar.collections import Collections

KEEP_ALIVE_SECONDS = 75
"""Longer than any client keeps an idle connection, so that no request meets a closing one."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket on a loopback address. Raises ``EmbeddedError``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise EmbeddedError(
            "not_loopback",
            f"the embedded vector engine does not listen on `{host}`",
            "use 127.0.0.1, or set GATEWAY_QDRANT_URL to a real server",
        )
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    for wanted in (port, 0):
        # the protocol named: asyncio sets TCP_NODELAY on such sockets only, and without it every
        # answer waits 40 ms for a delayed acknowledgement
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, wanted))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and wanted:
                continue
            raise EmbeddedError(
                "port_taken",
                f"the embedded vector engine cannot listen on `{host}` ({error.strerror})",
                "free the port, or set GATEWAY_QDRANT_URL to a server",
            ) from error
        return listener
    raise AssertionError("port 0 is never in use")


async def serve(collections: Collections, listener: socket.socket, *, api_key: str) -> None:
    """Serve until standard input closes or a signal comes."""
    server = uvicorn.Server(
        uvicorn.Config(
            Sidecar(collections, api_key=api_key),
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2,
        )
    )

    def heard() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            server.should_exit = True

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), heard)
    await server.serve(sockets=[listener])


def run(settings: dict[str, Any]) -> int:
    """Open the folder, listen, serve, close. The process's exit code."""
    try:
        listener = bind(settings["host"], settings["port"])
        collections = Collections(Path(settings["folder"]))
    except EmbeddedError as error:
        print(json.dumps({"code": error.code, "reason": error.reason, "remedy": error.remedy}))
        return 1
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    try:
        asyncio.run(serve(collections, listener, api_key=settings["api_key"]))
    finally:
        collections.close()
        listener.close()
    return 0


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.stdin.buffer.readline())))
