"""The supervisor's own process: starts both services, and ends them when the pipe closes.

Its standard input is a pipe that only the application holds open. However the application
ends, the pipe closes, and both services are stopped cleanly. On its standard output it
tells one JSON object a line: ``ready`` or ``failed`` once, then ``died`` for a service that
ends by itself. Nothing is restarted silently: what died stays dead, and is reported.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import psycopg

from retrieval.embedded.errors import EmbeddedError
from retrieval.embedded.places import Places, arrange
from retrieval.embedded.postgres import HOST, SUPERUSER, open_log, start_postgres
from retrieval.embedded.processes import die_with_parent, stop_process
from retrieval.embedded.state import Hold, Kept, keep, recall, with_ports

DATABASE: Final = "gateway"
STOP_SECONDS: Final = 10.0
SIDECAR_START_SECONDS: Final = 30.0
GLANCE_SECONDS: Final = 0.2


def watch(state: Path | None, *, parent: int, durable: bool) -> int:
    """Run until the pipe closes or a signal asks to stop. The process's exit code."""
    stopping: list[int] = []

    def ask_to_stop(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    with ExitStack() as stack:
        try:
            places = arrange(state)
            hold = Hold(places, parent=parent)
            stack.callback(hold.release)
            services = start_services(places, stack, durable=durable)
        except EmbeddedError as error:
            tell(event="failed", code=error.code, reason=error.reason, remedy=error.remedy)
            return 1
        tell(
            event="ready",
            services_file=str(places.services_file),
            pids={name: process.pid for name, process in services.items()},
        )
        while not stopping and not pipe_closed():
            for name in [name for name, process in services.items() if process.poll() is not None]:
                tell(event="died", service=name, status=services.pop(name).returncode)
    return 0


def start_services(
    places: Places, stack: ExitStack, *, durable: bool
) -> dict[str, subprocess.Popen[bytes]]:
    """Start both at once; ``stack`` stops what was started, also when the other fails."""
    kept = recall(places)
    sidecar = launch_sidecar(places, kept)
    stack.callback(stop_sidecar, sidecar)
    postgres = start_postgres(
        places,
        password=kept.postgres_password,
        port=kept.postgres_port or None,
        durable=durable,
    )
    stack.callback(postgres.stop)
    make_database(kept.postgres_password, postgres.port)
    qdrant_port = sidecar_port(sidecar, places)
    keep(places, with_ports(kept, postgres_port=postgres.port, qdrant_port=qdrant_port))
    return {"postgres": postgres.process, "qdrant": sidecar}


def launch_sidecar(places: Places, kept: Kept) -> subprocess.Popen[bytes]:
    """Start the sidecar. Its settings go through the pipe: a key in the environment or in
    the arguments could be read in the process table."""
    log = open_log(places.state / "qdrant.log")
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "retrieval.embedded.qdrant_sidecar"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
    settings = {
        "folder": str(places.qdrant),
        "host": HOST,
        "port": kept.qdrant_port,
        "api_key": kept.qdrant_api_key,
    }
    assert process.stdin is not None  # noqa: S101 - PIPE was asked for
    with suppress(BrokenPipeError):  # it ended at once: `sidecar_port` says why
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
    return process


def sidecar_port(process: subprocess.Popen[bytes], places: Places) -> int:
    """Wait for the sidecar to say which port it listens on."""
    assert process.stdout is not None  # noqa: S101 - PIPE was asked for
    deadline = time.monotonic() + SIDECAR_START_SECONDS
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], GLANCE_SECONDS)[0]:
            told = json.loads(process.stdout.readline() or b"{}")
            if "port" in told:
                return int(told["port"])
            if "code" in told:
                raise EmbeddedError(told["code"], told["reason"], told["remedy"])
            break
    raise EmbeddedError(
        "sidecar_failed",
        "the embedded vector engine did not start",
        f"read `{places.state / 'qdrant.log'}`, or set GATEWAY_QDRANT_URL to a server",
    )


def stop_sidecar(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()  # the polite way: it flushes and ends
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    stop_process(process, first=signal.SIGTERM, then=signal.SIGTERM, patience_s=STOP_SECONDS)


def make_database(password: str, port: int) -> None:
    """Create the product's database on the first start."""
    with psycopg.connect(
        host=HOST, port=port, user=SUPERUSER, password=password, dbname="postgres", autocommit=True
    ) as connection:
        found = connection.execute("select 1 from pg_database where datname = %s", [DATABASE])
        if found.fetchone() is None:
            connection.execute(f"create database {DATABASE}")


def pipe_closed() -> bool:
    """Look at the pipe from the application for a moment. What it sends is ignored."""
    if not select.select([sys.stdin], [], [], GLANCE_SECONDS)[0]:
        return False
    return not os.read(sys.stdin.fileno(), 4096)


def tell(**message: object) -> None:
    with suppress(BrokenPipeError):  # the application is gone: the pipe will say so too
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
