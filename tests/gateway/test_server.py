"""The runner: two listeners, one loop, a clear error for a taken port, a clean end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gateway.ingress.limits import Limits
from gateway.server import PortTaken, bind
from policies.snapshot import Snapshot
from tests.gateway.stage import Stage, parse
from tests.gateway.tokens import Issuers


def test_taken_port_is_one_clear_line() -> None:
    """Address, reason, remedy."""
    with bind("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(PortTaken, match="another address") as error:
            bind("127.0.0.1", port)
    assert "\n" not in str(error.value)


def test_drain_turns_unready_first_and_lets_a_request_end(
    believing: Snapshot, issuers: Issuers
) -> None:
    """The order of the end: on_drain, then no new connections, then nothing."""
    with Stage(believing, issuers, Limits(keep_alive_s=1)) as stage:
        assert stage.ask("GET", "/portal/customer/x").status == 200
        port = stage.port
    assert stage.drained.is_set()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def test_one_connection_too_many_is_told_in_our_words(
    believing: Snapshot, issuers: Issuers
) -> None:
    """A problem document like any other, and the connections that are open go on."""
    request = b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n\r\n"
    with (
        Stage(believing, issuers, Limits(keep_alive_s=5, connections=1)) as stage,
        socket.create_connection(("127.0.0.1", stage.port), timeout=5) as first,
    ):
        first.sendall(request)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")
        (reply,) = parse(stage.raw(request))
        assert (reply.status, json.loads(reply.body)["code"]) == (503, "overloaded")
        first.sendall(request)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")


PROGRAM = """
import asyncio
from gateway.ingress.limits import Limits
from gateway.server import bind, serve

async def app(scope, receive, send):
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})

async def say(word):
    print(word, flush=True)

data, admin = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
asyncio.run(serve(app, app, data_socket=data, admin_socket=admin, limits=Limits(),
    on_drain=lambda: say("draining"), drain_wait_s=0, graceful_s=2,
    on_ready=lambda: say(f"ready {data.getsockname()[1]} {admin.getsockname()[1]}")))
print("ended", flush=True)
"""


def test_sigterm_drains_and_ends_the_process() -> None:
    """A real process: ready, answered on both listeners, draining, ended with 0."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        assert process.stdout is not None
        word, data, admin = process.stdout.readline().split()
        assert word == "ready"
        for port in (data, admin):
            with socket.create_connection(("127.0.0.1", int(port)), timeout=5) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert sock.recv(100).startswith(b"HTTP/1.1 200")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=15)
        assert rest.split() == ["draining", "ended"]
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
