"""The real proxies, each with the configuration that ships for it and a way to check and run it.

A shipped file names fixed addresses; a test changes these and nothing else.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_port

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
ENVIRONMENT = ROOT / ".venv-proxies"
GATEWAY, PORTAL, PUBLIC = "127.0.0.1:8080", "127.0.0.1:9001", "127.0.0.1:8088"
START_S = 30.0
UP = frozenset({b"401", b"403", b"500", b"502", b"503"})
"""What a proxy answers an anonymous request when it routes: a decision, or the lack of one."""
_PROBE = b"GET /portal/partner/up HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Ports:
    """Where the gateway, the upstream and the proxy listen."""

    gateway: int
    upstream: int
    proxy: int


@dataclass(frozen=True)
class Kind:
    """One proxy: its program, the files it is given, how they are checked and how it starts."""

    name: str
    program: Callable[[], str | None]
    files: tuple[str, ...]
    check: tuple[str, ...]
    start: tuple[str, ...]

    def found(self) -> str:
        """The program. Skips the test where it is missing; fails it in CI."""
        program = self.program()
        if program is None:
            message = f"{self.name} is not installed: `make proxies`, nginx by the system"
            if os.environ.get("CI"):
                pytest.fail(message)
            pytest.skip(message)
        return program

    def line(self, arguments: tuple[str, ...], folder: Path) -> list[str]:
        """The command with these arguments, its files in this folder."""
        return [self.found(), *(one.format(folder=folder) for one in arguments)]

    def write(self, folder: Path, ports: Ports) -> None:
        """The shipped files in a folder, with the addresses of a test."""
        changes = {
            GATEWAY: f"127.0.0.1:{ports.gateway}",
            PORTAL: f"127.0.0.1:{ports.upstream}",
            PUBLIC: f"127.0.0.1:{ports.proxy}",
            "http://:8088": f"http://:{ports.proxy}",
            # Envoy's way to write an address
            "address: 127.0.0.1, port_value: 8080": _envoy(ports.gateway),
            "address: 127.0.0.1, port_value: 9001": _envoy(ports.upstream),
            "address: 127.0.0.1, port_value: 8088": _envoy(ports.proxy),
            "deploy/traefik/forward-auth.yml": str(folder / "forward-auth.yml"),
        }
        for name in self.files:
            text = (DEPLOY / self.name / name).read_text()
            for was, now in changes.items():
                text = text.replace(was, now)
            (folder / name).write_text(text)
        if self.name == "nginx":
            (folder / "nginx.conf").write_text(_nginx(folder))


def _envoy(port: int) -> str:
    return f"address: 127.0.0.1, port_value: {port}"


def _nginx(folder: Path) -> str:
    """What a distribution's own `nginx.conf` does around `conf.d/`, in a folder of the test."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{one}_temp_path {folder}/{one};" for one in kinds)
    return (
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;"
        f" events {{ worker_connections 256; }}"
        f" http {{ access_log off; {temporary} include {folder}/forward-auth.conf; }}"
    )


def _wheel(name: str) -> str | None:
    path = ENVIRONMENT / "bin" / name
    return str(path) if path.exists() else None


def _nginx_program() -> str | None:
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


_NGINX = ("-p", "{folder}", "-c", "{folder}/nginx.conf", "-e", "{folder}/error.log")
_CADDY = ("--config", "{folder}/Caddyfile", "--adapter", "caddyfile")
_ENVOY = ("-c", "{folder}/envoy.yaml", "-l", "error", "--concurrency", "1")
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("nginx", _nginx_program, ("forward-auth.conf",), ("-t", *_NGINX), _NGINX),
        Kind(
            "envoy",
            lambda: _wheel("envoy"),
            ("envoy.yaml",),
            ("--mode", "validate", *_ENVOY),
            # several Envoys of one user need shared memory of their own
            (*_ENVOY, "--use-dynamic-base-id"),
        ),
        Kind(
            "traefik",
            lambda: _wheel("traefik"),
            ("traefik.yml", "forward-auth.yml"),
            (),  # it has no command for it: `test_configurations` asks the running one
            ("--configFile={folder}/traefik.yml",),
        ),
        Kind(
            "caddy",
            lambda: _wheel("caddy"),
            ("Caddyfile",),
            ("validate", *_CADDY),
            ("run", *_CADDY),
        ),
    )
}


@contextmanager
def proxying(
    kind: Kind,
    folder: Path,
    *,
    gateway: int,
    upstream: int,
    edit: Callable[[Path], None] = lambda _: None,
    up: frozenset[bytes] = UP,
) -> Iterator[int]:
    """The port of a running proxy with the shipped configuration; it is ended by its own id."""
    kind.found()
    port = free_port()
    kind.write(folder, Ports(gateway, upstream, port))
    edit(folder)
    told = folder / "told"
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (
        told.open("wb") as output,
        subprocess.Popen(
            kind.line(kind.start, folder), stdout=output, stderr=output, env=os.environ | home,
            cwd=folder,
        ) as process,
    ):  # fmt: skip
        try:
            _until_open(port, process, told, up)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _until_open(
    port: int, process: subprocess.Popen[bytes], told: Path, up: frozenset[bytes]
) -> None:
    """Return when the proxy routes: Traefik opens its port before its file is read."""
    ends_at = time.monotonic() + START_S
    while time.monotonic() < ends_at:
        if process.poll() is not None:
            break
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
                sock.sendall(_PROBE)
                if sock.recv(12)[9:12] in up:
                    return
        except OSError:
            pass
        time.sleep(0.05)
    pytest.fail(f"the proxy did not start: {told.read_text()[-2000:]}")
