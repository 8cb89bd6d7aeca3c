"""The proxies beside ours, each with one core, one worker and kept connections to its upstream.

Envoy, Traefik and Caddy come from `.venv-proxies`, nginx and HAProxy from the system. What is
not installed is left out and said. Every peer verifies as much as its name says: *plain* passes
everything on, *jwt* believes the same issuer as the gateway does and looks at one claim.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.proxy_load import LOAD_CORE, PROXY_CORE, pinned
from tests.gateway.tokens import AUDIENCE, URLS, Issuers
from tests.ports import free_port

ROOT: Final = Path(__file__).parents[2]
_BIN: Final = ROOT / ".venv-proxies" / "bin"
_STAFF: Final = URLS["idp:staff"]
_START_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A running proxy: the process that all of its processes descend from, and its port."""

    name: str
    pid: int
    port: int


@contextlib.contextmanager
def started(command: list[str], port: int, folder: Path, **variables: str) -> Iterator[int]:
    """A process that listens on ``port``; ended afterwards. Gives its pid."""
    log = folder / f"{port}.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, stdout=out, stderr=out, cwd=folder, env={**os.environ, **variables}
        ) as process,
    ):
        try:
            _listening(process, port, log)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens: {log.read_text()}")


@contextlib.contextmanager
def upstream(folder: Path, files: dict[str, bytes]) -> Iterator[int]:
    """nginx that serves these files, on the core of the load. Gives its port."""
    root, port = folder / "files", free_port()
    for path, content in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    _open_to_others(folder, root)
    server = (
        f"server {{ listen 127.0.0.1:{port}; root {root}; open_file_cache max=16;"
        " default_type application/octet-stream; keepalive_requests 1000000000; }"
    )
    with started(_nginx(folder, f"up-{port}", server, LOAD_CORE), port, folder):
        yield port


@contextlib.contextmanager
def streaming_nginx(folder: Path, behind: int) -> Iterator[Peer]:
    """nginx that passes sockets and events on as they come, and bodies without a file."""
    port = free_port()
    server = (
        "client_max_body_size 0; map $http_upgrade $asks { default upgrade; '' ''; }"
        f" server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{behind};"
        " proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off;"
        " proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $asks; } }"
    )
    with started(_nginx(folder, f"streams-{port}", server, PROXY_CORE), port, folder) as pid:
        yield Peer("nginx", pid, port)


@contextlib.contextmanager
def peers(folder: Path, behind: int, issuers: Issuers, *, only: str = "") -> Iterator[list[Peer]]:
    """Every proxy that is installed, or the one of this name, running."""
    made: list[tuple[str, list[str], int, dict[str, str]]] = []
    if shutil.which("nginx"):
        port = free_port()
        made.append(
            ("nginx", _nginx(folder, "peer", _proxying(port, behind), PROXY_CORE), port, {})
        )
    made += _haproxy(folder, behind, issuers)
    for name, guarded in (("Envoy", False), ("Envoy jwt+RBAC", True)):
        if (_BIN / "envoy").exists():
            port = free_port()
            file = folder / f"envoy-{port}.json"
            file.write_text(json.dumps(_envoy(port, behind, issuers if guarded else None)))
            line = [os.fspath(_BIN / "envoy"), "-c", os.fspath(file), "--concurrency", "1"]
            line += ["--log-level", "error", "--disable-hot-restart"]
            made.append((name, pinned(PROXY_CORE, *line), port, {}))
    made += _go_proxies(folder, behind)
    with contextlib.ExitStack() as stack:
        yield [
            Peer(name, stack.enter_context(started(line, port, folder, **more)), port)
            for name, line, port, more in made
            if only in {"", name}
        ]


def _nginx(folder: Path, name: str, http: str, core: str) -> list[str]:
    file = folder / f"nginx-{name}.conf"
    scratch = "".join(
        f" {one}_temp_path {folder}/nginx-{name}-{one};"
        for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx-{name}.pid; error_log stderr;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off;{scratch}\n{http} }}\n"
    )
    return pinned(core, "nginx", "-c", os.fspath(file))


def _proxying(port: int, behind: int) -> str:
    return (
        f"upstream up {{ server 127.0.0.1:{behind}; keepalive 64; keepalive_requests 1000000000; }}"
        f" server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000000; location / {{"
        ' proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; } }'
    )


def _haproxy(
    folder: Path, behind: int, issuers: Issuers
) -> list[tuple[str, list[str], int, dict[str, str]]]:
    if not shutil.which("haproxy"):
        return []
    made = []
    rsa, ec = folder / "rsa.pem", folder / "ec.pem"
    rsa.write_bytes(issuers.rsa.as_pem(private=False))
    ec.write_bytes(issuers.keys["idp:staff"].as_pem(private=False))
    verify = (
        "  http-request set-var(txn.b) http_auth_bearer\n"
        "  http-request set-var(txn.alg) var(txn.b),jwt_header_query('$.alg')\n"
        "  http-request set-var(txn.iss) var(txn.b),jwt_payload_query('$.iss')\n"
        "  http-request set-var(txn.aud) var(txn.b),jwt_payload_query('$.aud')\n"
        f"  http-request deny unless {{ var(txn.iss) -m str {_STAFF} }}\n"
        f"  http-request deny unless {{ var(txn.aud) -m str {AUDIENCE} }}\n"
        f'  http-request deny unless {{ var(txn.b),jwt_verify(txn.alg,"{rsa}") -m int 1 }} or'
        f' {{ var(txn.b),jwt_verify(txn.alg,"{ec}") -m int 1 }}\n'
    )
    for name, rules in (("HAProxy", ""), ("HAProxy jwt", verify)):
        port = free_port()
        file = folder / f"haproxy-{port}.cfg"
        file.write_text(
            "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n"
            "  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
            f"  http-reuse always\nlisten peer\n  bind 127.0.0.1:{port}\n{rules}"
            f"  server up 127.0.0.1:{behind}\n"
        )
        line = pinned(PROXY_CORE, "haproxy", "-db", "-f", os.fspath(file))
        made.append((name, line, port, dict[str, str]()))
    return made


def _go_proxies(folder: Path, behind: int) -> list[tuple[str, list[str], int, dict[str, str]]]:
    made = []
    one_core = {"GOMAXPROCS": "1"}
    if (_BIN / "traefik").exists():
        port = free_port()
        static, dynamic = folder / "traefik.yml", folder / "traefik-routes.yml"
        static.write_text(
            json.dumps(
                {
                    "entryPoints": {"web": {"address": f"127.0.0.1:{port}"}},
                    "providers": {"file": {"filename": os.fspath(dynamic)}},
                    "log": {"level": "ERROR"},
                    "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
                }
            )
        )
        server = {"servers": [{"url": f"http://127.0.0.1:{behind}"}]}
        dynamic.write_text(
            json.dumps(
                {
                    "http": {
                        "routers": {"all": {"rule": "PathPrefix(`/`)", "service": "up"}},
                        "services": {"up": {"loadBalancer": server}},
                    }
                }
            )
        )
        line = [os.fspath(_BIN / "traefik"), f"--configFile={static}"]
        made.append(("Traefik", pinned(PROXY_CORE, *line), port, one_core))
    if (_BIN / "caddy").exists():
        port = free_port()
        file = folder / "Caddyfile"
        file.write_text(
            "{\n  admin off\n  auto_https off\n  persist_config off\n"
            "  log {\n    level ERROR\n  }\n}\n"
            f"http://127.0.0.1:{port} {{\n  bind 127.0.0.1\n"
            f"  reverse_proxy 127.0.0.1:{behind} {{\n    transport http {{\n"
            "      keepalive_idle_conns_per_host 64\n    }\n  }\n}\n"
        )
        line = [os.fspath(_BIN / "caddy"), "run", "--adapter", "caddyfile"]
        line += ["--config", os.fspath(file)]
        home = {"XDG_DATA_HOME": os.fspath(folder), "XDG_CONFIG_HOME": os.fspath(folder)}
        made.append(("Caddy", pinned(PROXY_CORE, *line), port, one_core | home))
    return made


def _envoy(port: int, behind: int, issuers: Issuers | None) -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions.filters"
    filters: list[dict[str, Any]] = []
    if issuers is not None:
        filters += _envoy_checks(kind, issuers)
    router = {"@type": f"{kind}.http.router.v3.Router"}
    filters.append({"name": "envoy.filters.http.router", "typed_config": router})
    routes = {
        "name": "all",
        "virtual_hosts": [
            {
                "name": "all",
                "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "up"}}],
            }
        ],
    }
    manager = {
        "@type": f"{kind}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": routes,
        "http_filters": filters,
    }
    listener = {
        "address": _address(port),
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": manager,
                    }
                ]
            }
        ],
    }
    endpoint = {"endpoint": {"address": _address(behind)}}
    cluster = {
        "name": "up",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "up", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _envoy_checks(kind: str, issuers: Issuers) -> list[dict[str, Any]]:
    """The token of our issuer, then its group, as Envoy's own filters do it."""
    provider = {
        "issuer": _STAFF,
        "audiences": [AUDIENCE],
        "payload_in_metadata": "claims",
        "local_jwks": {"inline_string": json.dumps(issuers.jwks("idp:staff"))},
    }
    jwt = {
        "@type": f"{kind}.http.jwt_authn.v3.JwtAuthentication",
        "providers": {"staff": provider},
        "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "staff"}}],
    }
    is_staff = {"list_match": {"one_of": {"string_match": {"exact": "staff-all"}}}}
    group = {
        "filter": "envoy.filters.http.jwt_authn",
        "path": [{"key": "claims"}, {"key": "groups"}],
        "value": is_staff,
    }
    under = {"url_path": {"path": {"prefix": "/portal/employee/"}}}
    policy = {"permissions": [under], "principals": [{"metadata": group}]}
    rbac = {
        "@type": f"{kind}.http.rbac.v3.RBAC",
        "rules": {"action": "ALLOW", "policies": {"staff": policy}},
    }
    return [
        {"name": "envoy.filters.http.jwt_authn", "typed_config": jwt},
        {"name": "envoy.filters.http.rbac", "typed_config": rbac},
    ]


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _open_to_others(folder: Path, root: Path) -> None:
    """nginx's worker gives up root and must still read the files."""
    folder.chmod(0o755)
    for one in (root, *root.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
