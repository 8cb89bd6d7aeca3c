"""Both ends of a self-test: a client that sends exact bytes, and an upstream that only looks.

Nothing here decides what an answer means; that is `proving`.
"""

from __future__ import annotations

import socket
import socketserver
import ssl
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

TIMEOUT_S: Final = 10.0
_HEAD_MAX: Final = 256 * 1024
CLOSED: Final = 0
"""The status of an answer that never came: the connection was closed instead."""


@dataclass(frozen=True, slots=True)
class Through:
    """The proxy, as its callers reach it."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Through:
        """Raises: ValueError for anything but http(s)://host[:port]."""
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"}
        if not known or not parts.hostname or parts.path not in {"", "/"}:
            raise ValueError(f"`{url}` is not http(s)://host[:port]")
        if parts.query or parts.fragment or parts.username:
            raise ValueError(f"`{url}` holds more than a host and a port")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def status(self, target: str, lines: Sequence[str] = (), *, host: str = "") -> int:
        """The status of a GET with these very bytes as target and header lines.

        A line ``Connection: ...`` of the caller takes the place of ours. Raises: OSError when
        no connection can be made or nothing comes within ``TIMEOUT_S``.
        """
        head = [f"GET {target} HTTP/1.1", f"Host: {host or self.authority}", *lines]
        if not any(line.lower().startswith("connection:") for line in lines):
            head.append("Connection: close")
        with socket.create_connection((self.host, self.port), TIMEOUT_S) as plain:
            if not self.tls:
                return _status(plain, head)
            with ssl.create_default_context().wrap_socket(plain, server_hostname=self.host) as sock:
                return _status(sock, head)


def _status(sock: socket.socket, head: list[str]) -> int:
    received = b""
    try:
        sock.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n")
        while len(received) < _HEAD_MAX and (piece := sock.recv(65536)):
            received += piece
            while b"\r\n\r\n" in received and received[9:10] == b"1":
                received = received.partition(b"\r\n\r\n")[2]
            if b"\r\n" in received:
                break
    except ConnectionError:
        return CLOSED
    first = received.split(b"\r\n", 1)[0].split(b" ")
    return int(first[1]) if len(first) > 1 and first[1].isdigit() else CLOSED


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request at the upstream; names in lower case, otherwise as they came."""

    target: str
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        return [value for one, value in self.headers if one == name]


@dataclass(slots=True)
class Upstream:
    """What arrived at a stand-in for the upstream."""

    arrivals: list[Arrival] = field(default_factory=list)

    def taken(self) -> list[Arrival]:
        """What arrived since this was asked last."""
        taken, self.arrivals = self.arrivals, []
        return taken


def standing_in(host: str, port: int) -> AbstractContextManager[Upstream]:
    """An upstream that answers every request with an empty 200, bound already.

    Raises: OSError when it cannot be bound.
    """
    upstream = Upstream()

    class Handler(socketserver.StreamRequestHandler):
        timeout = TIMEOUT_S

        def handle(self) -> None:
            arrival = _read(self.rfile)
            if arrival is not None:
                upstream.arrivals.append(arrival)
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    return _serving(Server((host, port), Handler), upstream)


@contextmanager
def _serving(server: socketserver.BaseServer, upstream: Upstream) -> Iterator[Upstream]:
    with server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield upstream
        finally:
            server.shutdown()
            thread.join()


def _read(source: Any) -> Arrival | None:
    try:
        line = source.readline(_HEAD_MAX).decode("latin-1").split(" ")
        headers: list[tuple[str, str]] = []
        while text := source.readline(_HEAD_MAX).decode("latin-1").rstrip("\r\n"):
            name, _, value = text.partition(":")
            headers.append((name.lower(), value.strip()))
    except OSError:
        return None
    return Arrival(line[1], tuple(headers)) if len(line) == 3 else None
