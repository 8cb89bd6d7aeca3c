"""A gateway in a process of its own, in front of portals that record, and raw sockets to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from retrieval.embedded import Embedded
from tests.adversary.portals import Arrived, Portals
from tests.gateway.cli.made import clean, environment
from tests.gateway.stage import Reply, parse
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.serving import believing

LIMITS: Final = """
[limits]
header_ms = 1500
keep_alive_ms = 3000
body_ms = 2000
body_idle_ms = 1500
request_ms = 20000
"""
"""Times short enough to wait for, and long enough for a busy machine to send a header block."""
_READ_S: Final = 20.0


@dataclass
class Gateway:
    """A running process: two ports, its log, and the portals behind it."""

    process: subprocess.Popen[str]
    ports: dict[str, int]
    portals: Portals
    issuers: Issuers
    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.ports["data"]

    @property
    def arrived(self) -> list[Arrived]:
        """What arrived, all that was on its way included."""
        self.portals.settle()
        return self.portals.arrived

    def faults(self) -> list[str]:
        """Lines of the process's log that nobody should see: errors and tracebacks."""
        lines = [json.loads(line) if line.startswith("{") else {"message": line}
                 for line in self.said[1:]]  # fmt: skip
        return [str(line) for line in lines if line.get("level") != "warning"]

    def log_lines(self) -> list[bytes]:
        """What was written about requests so far: access log and decision log."""
        logs = ("access.log", "decisions.jsonl")
        return [line for log in logs for line in (self.folder / log).read_bytes().splitlines()]

    # --- asking ---------------------------------------------------------------------------

    def raw(self, data: bytes, *, listener: str = "data", half_close: bool = False) -> bytes:
        """Everything that comes back until the gateway closes; ``<reset>`` when it resets."""
        with self.connect(listener) as sock:
            received = b""
            try:
                sock.sendall(data)
                if half_close:
                    sock.shutdown(socket.SHUT_WR)
            except (ConnectionResetError, BrokenPipeError):
                pass  # refused before all was sent; its answer may be there
            try:
                while piece := sock.recv(65536):
                    received += piece
            except ConnectionResetError:
                received += b"<reset>"
            return received

    def replies(self, data: bytes, *, listener: str = "data") -> list[Reply]:
        return parse(self.raw(data, listener=listener).replace(b"<reset>", b""))

    def connect(self, listener: str = "data") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=_READ_S)

    def token(self, who: str) -> str:
        return self.issuers.token(who)

    def ask(
        self,
        method: str,
        target: str,
        *,
        who: str = "",
        headers: Collection[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> Reply:
        """One request on a connection of its own."""
        lines = [f"{method} {target} HTTP/1.1", "Host: gateway.test", "Connection: close"]
        if who:
            lines.append(f"Authorization: Bearer {self.token(who)}")
        lines += [f"{name}: {value}" for name, value in headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        raw = self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        if method == "HEAD":
            raw = raw.replace(b"content-length", b"x-length")
        (reply,) = parse(raw)
        return reply

    # --- what it holds --------------------------------------------------------------------

    def rss_kib(self) -> int:
        """Resident memory of the process that serves."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [one for one in status.splitlines() if one.startswith("VmRSS:")]
        return int(line.split()[1])

    def sockets(self) -> int:
        """Open sockets of the process that serves."""
        found = 0
        for one in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                found += os.readlink(one).startswith("socket:")
            except FileNotFoundError:
                continue  # closed meanwhile
        return found

    def settled_sockets(self, at_most: int, *, within_s: float = 15.0) -> int:
        """The sockets that are left once there are ``at_most``, or when the time is over."""
        until = time.monotonic() + within_s
        while (count := self.sockets()) > at_most and time.monotonic() < until:
            threading.Event().wait(0.05)
        return count


def head(gateway: Gateway, line: bytes, *lines: bytes, who: str = "customer") -> bytes:
    """A header block of this caller with a Host, ended."""
    bearer = f"Authorization: Bearer {gateway.token(who)}".encode()
    return b"\r\n".join((line, b"Host: gateway.test", bearer, *lines, b"", b""))


@contextmanager
def running_gateway(
    services: Embedded, database: Database, folder: Path, *, toml: str = LIMITS, workers: int = 1
) -> Iterator[Gateway]:
    """``gateway serve`` on the shared stores; it must be alive at the end and end cleanly."""
    issuers = Issuers()
    env = environment(services, database, folder)
    config = Path(env["GATEWAY_CONFIG"])
    config.write_text(config.read_text().replace("access_log = false", "access_log = true") + toml)
    env["GATEWAY_POLICY"] = str(believing(issuers, folder))
    env["GATEWAY_DECISION_LOG_FILE"] = str(folder / "decisions.jsonl")
    with Portals() as portals, (folder / "access.log").open("wb") as access_log:
        for name, address in portals.addresses.items():
            env[f"GATEWAY_UPSTREAM_{name.replace('-', '_').upper()}"] = address
        with subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--no-embedded", f"--workers={workers}"],
            env=clean() | env,
            stdout=access_log,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            said = [process.stderr.readline()]
            listen = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
            listen.start()
            try:
                assert said[0].startswith("gateway: listening on "), said
                words = said[0].rstrip(")\n").split()
                ports = {
                    "data": urlsplit(words[3]).port or 0,
                    "second": urlsplit(words[-1]).port or 0,
                }
                yield Gateway(process, ports, portals, issuers, folder, said)
                assert process.poll() is None, said
            finally:
                process.terminate()
                code = process.wait(30)
                listen.join(10)
            assert code == 0, said
