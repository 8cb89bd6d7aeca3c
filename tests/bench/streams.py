"""What stays open beside nginx: sockets per message, events, slow readers, leaving, long bodies.

Processor time is that of all processes of a proxy, as in the suite *proxy*: the proxy has one
core, upstream and callers (this process) the other; rounds alternate. nginx passes bytes on and
verifies nothing. What a proxy spends when nothing is asked (the gateway looks after its stores) is
measured before each round and taken off, for it would count the more the slower the machine is.
Memory is the resident set of the gateway's process, its peak reset before.

``BENCH_SECONDS`` is the length of one round, ``BENCH_GIGABYTES`` that of the long bodies (1).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from policies.snapshot import DEFAULT_FOLDER
from tests.bench import proxy
from tests.bench.proxy_load import LOAD_CORE, cpu_seconds
from tests.bench.proxy_peers import ROOT, Peer, streaming_nginx
from tests.bench.proxy_plot import drawn
from tests.bench.streams_callers import (
    Door,
    Listener,
    Pinger,
    binary,
    callers,
    download,
    silent,
    text,
    upload,
)
from tests.bench.streams_portal import Portal, opened
from tests.gateway.tokens import Issuers

SOCKETS: Final = 16
STREAMS: Final = 300
TICKS: Final = 20
"""Events a second on each stream."""
LEAVINGS: Final = 50
OFFERED_BYTES: Final = 400 * 1024 * 1024
GIGABYTES: Final = int(os.environ.get("BENCH_GIGABYTES", "1"))
NGINX: Final = "nginx"
TEXT, LONGER, BINARY = "text", "longer text", "binary"
EVENT, STREAM, IDLE = "event", "stream", "idle"
CASES: Final = {
    TEXT: f"echo of 64 B of text, {SOCKETS} sockets, a round trip",
    LONGER: f"echo of 1 KiB of text, {SOCKETS} sockets, a round trip",
    BINARY: f"echo of 4 KiB, {SOCKETS} sockets, a round trip",
    EVENT: f"server-sent events, {STREAMS} streams, an event",
    STREAM: f"{STREAMS} streams of events, memory of one",
    IDLE: "nothing asked, a second (taken off above)",
}
UNITS: Final = dict.fromkeys((TEXT, LONGER, BINARY, EVENT), "us CPU") | {
    STREAM: "KiB",
    IDLE: "ms CPU",
}
ROUTES: Final = ("    upstream: employee-portal\n", "    origins: [absent]\n")
ROOM: Final = f"connections_max = {STREAMS + 100}"


def run(out: Console, rounds: int) -> dict[str, Any]:
    if shutil.which("nginx") is None:
        out.print("left out: nginx is not installed (Debian has it)")
        return {"left_out": ["nginx"]}
    with _on_the_loads_core(), tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        return uvloop.run(_measured(out, rounds, Path(scratch)))


async def _measured(out: Console, rounds: int, folder: Path) -> dict[str, Any]:
    issuers = Issuers()
    text_of = (DEFAULT_FOLDER / "rules" / "routes.yaml").read_text()
    routes = text_of.replace(ROUTES[0], "".join(ROUTES))
    async with opened() as portal:
        with contextlib.ExitStack() as stack:
            ours = stack.enter_context(
                proxy.gateway(folder, portal.port, issuers, routes=routes, upstream=ROOM)
            )
            peer = stack.enter_context(streaming_nginx(folder, portal.port))
            token = proxy.staff_token(issuers, "u-1", rsa=True)
            await _quiet(ours)
            door = Door(ours.port, token)
            alone = {  # first: memory that rounds leave behind would hide some of it
                "slow_reader_mib": await _slow_reader(ours, door, portal),
                "left_events_ms": await _leaving(door, portal, events=True),
                "left_socket_ms": await _leaving(door, portal, events=False),
                "long_bodies": await _long_bodies(ours, door, portal),
            }
            found: proxy.Found = {case: {ours.name: [], NGINX: []} for case in CASES}
            for number in range(rounds):
                for one in (ours, peer):
                    await _round(one, Door(one.port, token), portal, found)
                load = os.getloadavg()[0]
                out.print(f"round {number + 1} of {rounds}, load {load:.1f}", style="dim")
    medians = {
        case: {name: round(statistics.median(values), 3) for name, values in of.items()}
        for case, of in found.items()
    }
    bars = _bars(medians, found[STREAM][proxy.OURS], alone)
    _print(out, medians, found, bars)
    svg = ROOT / "build" / "bench-streams.svg"
    svg.parent.mkdir(exist_ok=True)
    svg.write_text(drawn(CASES, medians, UNITS), "utf-8")
    out.print(f"plot: build/{svg.name}")
    return {
        "seconds": proxy.SECONDS,
        "interpreter": proxy.interpreter(),
        "cases": CASES,
        "rounds": found,
        "medians": medians,
        "gateway": alone,
        "bars": bars,
    }


# --- what is counted --------------------------------------------------------------------------


async def _quiet(peer: Peer) -> None:
    """Return when a proxy has done with its start: a second that costs it less than a tenth."""
    async with asyncio.timeout(60):
        spent = -1.0
        while (now := cpu_seconds(peer.pid)) - spent > 0.1 or spent < 0:
            spent = now
            await asyncio.sleep(1)


async def _round(peer: Peer, door: Door, portal: Portal, found: proxy.Found) -> None:
    spent = cpu_seconds(peer.pid)
    await asyncio.sleep(proxy.SECONDS)
    idle = (cpu_seconds(peer.pid) - spent) / proxy.SECONDS
    found[IDLE][peer.name].append(round(idle * 1e3, 2))
    for case, made in (
        (TEXT, [text(64, door) for _ in range(SOCKETS)]),
        (LONGER, [text(1024, door) for _ in range(SOCKETS)]),
        (BINARY, [binary(4096, door) for _ in range(SOCKETS)]),
    ):
        found[case][peer.name].append(await _echoed(peer, door, made, idle))
    cpu_us, held_kib = await _told(peer, door, portal, idle)
    found[EVENT][peer.name].append(cpu_us)
    found[STREAM][peer.name].append(held_kib)
    await _settled(portal)


async def _echoed(peer: Peer, door: Door, made: Sequence[Pinger], idle: float) -> float:
    """Microseconds of processor time of one round trip."""
    async with callers(door, list(made)):
        for one in made:
            one.ask()
        await asyncio.sleep(0.5)
        began, rounds = time.monotonic(), sum(one.rounds for one in made)
        spent = cpu_seconds(peer.pid)
        await asyncio.sleep(proxy.SECONDS)
        spent = cpu_seconds(peer.pid) - spent - idle * (time.monotonic() - began)
        rounds = sum(one.rounds for one in made) - rounds
        for one in made:
            one.running = False
        await asyncio.sleep(0.1)
    return round(spent / rounds * 1e6, 2)


async def _told(peer: Peer, door: Door, portal: Portal, idle: float) -> tuple[float, float]:
    """Microseconds of processor time of one event, KiB of memory of one stream."""
    before = _resident(peer.pid)
    made = [Listener(door) for _ in range(STREAMS)]
    async with callers(door, list(made)):
        event = b'data: {"number": 1, "text": "something happened"}\n\n'
        told = STREAMS + await _tell(portal, event, 0.5)  # each begins with one
        await _heard(made, told)
        held = (_resident(peer.pid) - before) / STREAMS
        began, spent = time.monotonic(), cpu_seconds(peer.pid)
        more = await _tell(portal, event, proxy.SECONDS)
        await _heard(made, told + more)
        spent = cpu_seconds(peer.pid) - spent - idle * (time.monotonic() - began)
    return round(spent / more * 1e6, 2), round(held / 1024, 1)


async def _tell(portal: Portal, event: bytes, seconds: float) -> int:
    """An event to all at each tick; how many that were together."""
    told, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        assert len(portal.listeners) == STREAMS
        portal.tell(event)
        told += STREAMS
        await asyncio.sleep(1 / TICKS)
    return told


async def _heard(made: Sequence[Listener], told: int) -> None:
    """Return when all that was told has been heard, and no more."""
    async with asyncio.timeout(60):
        while (heard := sum(one.events for one in made)) < told:  # noqa: ASYNC110 - of 300
            await asyncio.sleep(0.02)
    assert heard == told, (heard, told)


async def _settled(portal: Portal) -> None:
    """Return when the upstream has lost all that was open."""
    async with asyncio.timeout(10):
        while portal.listeners:
            await portal.ended_at.get()
    while not portal.ended_at.empty():
        portal.ended_at.get_nowait()


async def _slow_reader(peer: Peer, door: Door, portal: Portal) -> float:
    """MiB that the peak grew by while a caller asked for 400 MiB and read nothing."""
    portal.offered_bytes = OFFERED_BYTES
    before = _resident(peer.pid, afresh=True)
    with await asyncio.to_thread(silent, door):
        await asyncio.sleep(3)
        peak = _peak(peer.pid)
    await asyncio.sleep(0.5)
    return round((peak - before) / 2**20, 2)


async def _leaving(door: Door, portal: Portal, *, events: bool) -> list[float]:
    """Milliseconds from a caller's end to that of the upstream's connection, each time."""
    waits = []
    for _ in range(LEAVINGS):
        one: Listener | Pinger = Listener(door) if events else text(64, door)
        async with callers(door, [one]):
            await asyncio.sleep(0.15)  # of age: younger ones are watched by a timer first
            left = time.monotonic()
        async with asyncio.timeout(10):
            waits.append(round((await portal.ended_at.get() - left) * 1e3, 2))
    return waits


async def _long_bodies(peer: Peer, door: Door, portal: Portal) -> dict[str, float]:
    """MiB that the peak grew by, and seconds, for a body down and one up."""
    size = portal.offered_bytes = GIGABYTES * 10**9
    found: dict[str, float] = {"gigabytes": GIGABYTES}
    for name in ("down", "up"):
        before, began = _resident(peer.pid, afresh=True), time.monotonic()
        if name == "down":
            assert await _in_thread(download, door, size) == size
        else:
            assert (await _in_thread(upload, door, size)).endswith(b"ok")
            assert portal.taken_bytes == size
        found[f"{name}_mib"] = round((_peak(peer.pid) - before) / 2**20, 2)
        found[f"{name}_s"] = round(time.monotonic() - began, 1)
    return found


async def _in_thread(work: Any, door: Door, size: int) -> Any:
    return await asyncio.to_thread(work, door, size)


# --- machine ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _on_the_loads_core() -> Iterator[None]:
    """This thread, and what it starts, beside the proxies and not among them."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {int(LOAD_CORE)} & allowed or allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _resident(pid: int, *, afresh: bool = False) -> int:
    """Bytes of a process and all that descend from it; ``afresh`` forgets the peak of ``pid``."""
    if afresh:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status(pid, "VmRSS")


def _peak(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


# --- result -----------------------------------------------------------------------------------


def _bars(
    medians: dict[str, dict[str, float]], streams: list[float], alone: dict[str, Any]
) -> list[dict[str, Any]]:
    """Issue 4, "Must hold"; design, libraries Part C, for the memory of a stream, which is that of
    the first round: later ones find what that left."""
    bodies = alone["long_bodies"]
    found = [
        (case, "times nginx", 1.1, medians[case][proxy.OURS] / medians[case][NGINX])
        for case in (TEXT, LONGER, BINARY)
    ]
    found += [
        (EVENT, "us CPU an event", 40.0, medians[EVENT][proxy.OURS]),
        (STREAM, "KiB a stream", 30.0, max(streams)),
        ("slow reader", "MiB added", 16.0, alone["slow_reader_mib"]),
    ]
    found += [
        (f"caller leaves ({name})", "ms, the longest", 250.0, max(alone[f"left_{name}_ms"]))
        for name in ("events", "socket")
    ]
    found += [
        (f"{GIGABYTES} GB {way}", "MiB added", 95.3, bodies[f"{way}_mib"]) for way in ("down", "up")
    ]
    return [
        {"case": case, "unit": unit, "at_most": bar, "found": round(figure, 3)}
        for case, unit, bar, figure in found
    ]


def _print(
    out: Console,
    medians: dict[str, dict[str, float]],
    found: proxy.Found,
    bars: list[dict[str, Any]],
) -> None:
    for case, title in CASES.items():
        table = Table("proxy", UNITS[case], "rounds", "ours / theirs", title=title)
        for name, median in sorted(medians[case].items(), key=lambda one: one[1]):
            each = " ".join(f"{value:.3g}" for value in found[case][name])
            ratio = medians[case][proxy.OURS] / median if median else float("nan")
            table.add_row(name, f"{median:.3g}", each, f"{ratio:.2f}")
        out.print(table)
    table = Table("bar", "unit", "at most", "found", "", title="issue 4")
    for bar in bars:
        met = "holds" if bar["found"] <= bar["at_most"] else "SHORT"
        table.add_row(bar["case"], bar["unit"], f"{bar['at_most']:g}", f"{bar['found']:.3g}", met)
    out.print(table)
