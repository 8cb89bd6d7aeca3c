"""A store is down, the disk is full, the process is killed: what callers and operators get.

Provenance: the issue's "Must hold" on faults, and its points 3, 5 and 6. These tests start
services of their own, because they end them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded, start
from retrieval.embedded.places import arrange
from retrieval.embedded.postgres import start_postgres
from retrieval.embedded.processes import command_of
from retrieval.embedded.state import Kept
from retrieval.embedded.watch import launch_sidecar, sidecar_port, stop_sidecar
from retrieval.ingest.identity import thread_id
from tests.gateway.cli.made import clean, environment, gateway
from tests.gateway.tokens import Issuers
from tests.services import Database, state_folder
from tests.system.composed import Composed, Record, Reply, composed, thread, unit

ISSUERS = Issuers()
WAIT_SECONDS = 40.0
pytestmark = pytest.mark.timeout(400)  # several starts each, on a machine that others use
ONE_LINE: Final = re.compile(r"gateway: error: [a-z_]+: .+; .+")
WORLD: tuple[Record, ...] = (
    thread("thread/returns", "Returning goods"),
    unit("law/returns", "Goods may be returned within thirty days.", thread="thread/returns"),
    unit("faq/shipping", "Shipping takes two days."),
)


@pytest.fixture
def state() -> Iterator[Path]:
    with state_folder() as folder:
        yield folder


# --- the composed gateway over a pair that can be broken --------------------------------------


@asynccontextmanager
async def portal() -> AsyncIterator[str]:
    """An upstream of an opaque route: it says hello to everything."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def at_portal(address: str) -> str:
    """The lines of the settings that name the portal's address."""
    return f'[upstreams.customer-portal]\naddress = "{address}"\n'


def play(pair: Embedded, tmp_path: Path, scene: Callable[[Composed], Awaitable[None]]) -> None:
    """Run a scene on a gateway with ``WORLD`` over this pair."""
    database = Database(url=pair.database_url, secret=pair.database_secret, name="gateway")
    env = environment(pair, database, tmp_path)

    config = Path(env["GATEWAY_CONFIG"])
    plain = config.read_text()

    async def main() -> None:
        async with portal() as address:
            await asyncio.to_thread(config.write_text, plain + at_portal(address))
            async with composed(env, ISSUERS, tmp_path) as stage:
                await stage.ingest(*WORLD)
                await stage.indexed()
                await scene(stage)

    asyncio.run(main())


PACK: Final = f"/v1/threads/{thread_id('thread/returns')}/pack"


async def guarded(stage: Composed) -> dict[str, Reply]:
    """One answer of every guarded route, and of every way that retrieval takes."""
    asking = {
        "scope": stage.get("/v1/scope"),
        "unit": stage.get("/v1/units/law/returns"),
        "hidden": stage.get("/v1/units/law/nothing"),
        "pack": stage.get(PACK),
        "explicit": stage.retrieve("anything", thread="thread/returns"),
        "keyword": stage.retrieve("returning goods"),
        "fallback": stage.retrieve("parcels shipping days unheard"),
        "raw": stage.raw("shipping"),
    }
    return dict(zip(asking, await asyncio.gather(*asking.values()), strict=True))


def codes(replies: dict[str, Reply]) -> dict[str, tuple[int, str]]:
    return {
        name: (reply.status, reply.code if reply.status >= 400 else "")
        for name, reply in replies.items()
    }


async def until_same(stage: Composed, wanted: dict[str, Reply]) -> None:
    """Return when every answer is again what it was."""
    deadline = time.monotonic() + WAIT_SECONDS
    while other := differing(wanted, await guarded(stage)):
        assert time.monotonic() < deadline, other
        await asyncio.sleep(0.1)


def differing(wanted: dict[str, Reply], got: dict[str, Reply]) -> dict[str, tuple[object, object]]:
    """What is not the same, as it was and as it is."""
    return {
        name: (reply.same, got[name].same)
        for name, reply in wanted.items()
        if reply.same != got[name].same
    }


def kept_of(state: Path) -> Kept:
    return Kept(**json.loads(arrange(state).services_file.read_bytes()))


async def until_dead(pair: Embedded, service: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while service not in {death.service for death in pair.deaths}:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_without_postgres_every_guarded_route_is_refused_and_heals(
    state: Path, tmp_path: Path
) -> None:
    """503 with one body each; a portal goes on; after the restart everything is as it was."""

    async def scene(stage: Composed) -> None:
        before = await guarded(stage)
        assert codes(before) == dict.fromkeys(before, (200, "")) | {"hidden": (404, "not_found")}
        os.kill(pair.pids["postgres"], signal.SIGKILL)
        await until_dead(pair, "postgres")
        down = await guarded(stage)
        assert set(codes(down).values()) == {(503, "retrieval_unavailable")}
        assert len({reply.same for reply in down.values()}) == 1
        status, checks = await stage.ready()
        assert (status, checks["database"]) == (503, "database_unavailable")
        assert (await stage.get("/portal/customer/home")).body == b"hello"
        kept = kept_of(state)
        again = await asyncio.to_thread(
            start_postgres,
            arrange(state),
            password=kept.postgres_password,
            port=kept.postgres_port,
        )
        try:
            await until_same(stage, before)
            assert (await stage.ready())[0] == 200
        finally:
            await asyncio.to_thread(again.stop)

    with start(state) as pair:
        play(pair, tmp_path, scene)


def test_without_the_index_threads_are_served_whole_and_the_rest_is_refused(
    state: Path, tmp_path: Path
) -> None:
    """Explicit and keyword hits say `degraded`; what needs vectors is 503, never thinner."""
    needs_vectors = {"fallback", "raw"}

    async def scene(stage: Composed) -> None:
        before = await guarded(stage)
        os.kill(pair.pids["qdrant"], signal.SIGKILL)
        await until_dead(pair, "qdrant")
        down = await guarded(stage)
        for name, reply in down.items():
            if name in needs_vectors:
                assert (reply.status, reply.code) == (503, "index_unavailable"), name
            elif name in {"pack", "explicit", "keyword"}:
                whole = json.loads(before[name].steady)
                assert json.loads(reply.steady) == whole | {"degraded": ["vector"]}
            else:
                assert reply.same == before[name].same, name
        status, checks = await stage.ready()
        assert (status, checks["index"]) == (200, "index_unavailable")
        places, kept = arrange(state), kept_of(state)
        sidecar = await asyncio.to_thread(launch_sidecar, places, kept)
        try:
            assert await asyncio.to_thread(sidecar_port, sidecar, places) == kept.qdrant_port
            await until_same(stage, before)
        finally:
            await asyncio.to_thread(stop_sidecar, sidecar)
            assert sidecar.stdout is not None
            sidecar.stdout.close()

    with start(state, durable=False) as pair:
        play(pair, tmp_path, scene)


# --- a gateway as its own process, with services of its own -----------------------------------


@dataclass(frozen=True, slots=True)
class Served:
    """A `gateway serve` that listens."""

    process: subprocess.Popen[str]
    url: str
    admin_url: str

    def unit(self, address: str = "law/returns") -> int:
        bearer = {"authorization": f"Bearer {ISSUERS.token('customer')}"}
        found = httpx.get(f"{self.url}/v1/units/{address}", headers=bearer, trust_env=False)
        return found.status_code


@pytest.fixture
def settings(state: Path, tmp_path: Path) -> dict[str, str]:
    """An embedded gateway in ``state``, believing our issuers."""
    policy = tmp_path / "policy"
    shutil.copytree(DEFAULT_FOLDER, policy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    ISSUERS.write(tmp_path / "overlay")
    shutil.copytree(tmp_path / "overlay", policy, dirs_exist_ok=True)
    return {
        "GATEWAY_STATE": str(state),
        "GATEWAY_POLICY": str(policy),
        "GATEWAY_EMBEDDER": "hashing-64",
        "GATEWAY_LISTEN": "127.0.0.1:0",
        "GATEWAY_ADMIN_LISTEN": "127.0.0.1:0",
    }


@contextmanager
def serving(settings: dict[str, str]) -> Iterator[Served]:
    """Listening; killed afterwards if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve"],
        env=clean() | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            told = process.stderr.readline()
            assert told.startswith("gateway: listening on "), told
            words = told.split()
            yield Served(process, words[3], words[-1].rstrip(")"))
        finally:
            process.terminate()
            try:
                process.communicate(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()


def ingest(settings: dict[str, str], folder: Path, *records: Record) -> tuple[int, list[str]]:
    file = folder / "records.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in records))
    ended = gateway("ingest", str(file), "--mapping", "native", **settings)
    return ended.code, ended.lines


def services_of(state: Path) -> set[int]:
    """Every living process that works on this state folder (but ours), found by what it was
    started with."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            command = command_of(int(entry.name)) or ""
            if str(state) in command or _holds(int(entry.name), state):
                found.add(int(entry.name))
    return found


def _holds(pid: int, state: Path) -> bool:
    try:
        return any(str(state) in os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_killed_gateway_leaves_nothing_running_and_loses_nothing(
    state: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    """While it runs, commands use its services and a second one is told who holds them."""
    with serving(settings) as first:
        assert ingest(settings, tmp_path, *WORLD) == (0, [])
        assert first.unit() == 200
        second = gateway("serve", **settings)
        assert second.code == 4
        (line,) = second.lines
        assert line.startswith("gateway: error: state_held: ")
        assert ONE_LINE.fullmatch(line)
        assert first.unit() == 200
        assert len(services_of(state)) >= 3
        first.process.kill()
        first.process.wait()
        until(lambda: not services_of(state), "the end of the services")
    with serving(settings) as again:
        assert again.unit() == 200
        until(
            lambda: httpx.get(f"{again.admin_url}/readyz", trust_env=False).status_code == 200,
            "readiness",
        )
        assert ingest(settings, tmp_path, *WORLD) == (0, [])
        again.process.terminate()
        assert again.process.wait(40) == 0
    assert services_of(state) == set()


def test_sigterm_lets_what_is_under_way_end(
    state: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    """Not ready at once, the answer under way in full, then exit 0 and nothing left."""
    config = tmp_path / "gateway.toml"
    with ExitStack() as stack:
        upstream = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        upstream.settimeout(WAIT_SECONDS)
        port = upstream.getsockname()[1]
        config.write_text(
            "[limits]\ndrain_ms = 1500\n[telemetry]\naccess_log = false\n"
            + at_portal(f"http://127.0.0.1:{port}")
        )
        more = {"GATEWAY_CONFIG": str(config)}
        served = stack.enter_context(serving(settings | more))
        parts = urlsplit(served.url)
        caller = stack.enter_context(socket.create_connection((parts.hostname, parts.port)))
        caller.settimeout(WAIT_SECONDS)
        caller.sendall(b"GET /portal/customer/home HTTP/1.1\r\nhost: gateway.test\r\n\r\n")
        waiting, _ = upstream.accept()
        stack.enter_context(waiting)
        served.process.send_signal(signal.SIGTERM)
        until(
            lambda: httpx.get(f"{served.admin_url}/readyz", trust_env=False).status_code == 503,
            "draining",
        )
        waiting.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        received = b""
        while piece := caller.recv(65_536):
            received += piece
        assert received.startswith(b"HTTP/1.1 200 ")
        assert received.endswith(b"hello")
        assert served.process.wait(40) == 0
    until(lambda: not services_of(state), "the end of the services")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_disk_that_fills_up_costs_what_is_new_and_nothing_else(
    state: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    """Ingest ends with one line and a remedy; what is there is served; space heals it."""
    state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=260m,mode=711", "none", str(state)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not allow mounting")
    try:
        with serving(settings) as served:
            assert ingest(settings, tmp_path, *WORLD) == (0, [])
            with (state / "filler").open("wb") as filler:
                fill(filler.fileno())
            noise = random.Random(7)  # nothing that could be stored in less
            long = [unit(f"long/{n}", noise.randbytes(250_000).hex()) for n in range(20)]
            code, lines = ingest(settings, tmp_path, *long)
            assert code == 4, lines
            (line,) = lines
            assert line.startswith("gateway: error: disk_full: "), line
            assert ONE_LINE.fullmatch(line)
            assert served.unit() == 200
            (state / "filler").unlink()
            until(lambda: served.unit() == 200, "an answer")
            assert ingest(settings, tmp_path, *long) == (0, [])
            assert served.unit("long/19") == 200
            served.process.terminate()
            assert served.process.wait(40) == 0
    finally:
        subprocess.run(["umount", str(state)], check=True)


def fill(descriptor: int) -> None:
    """Write until the file system has no block left."""
    for size in (1 << 20, 4096):
        try:
            while True:
                os.write(descriptor, bytes(size))
        except OSError:
            continue
