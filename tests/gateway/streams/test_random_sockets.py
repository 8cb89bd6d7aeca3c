"""Sockets under a client that fragments, pauses, resets and breaks frames at random.

Provenance: issue 4 ("Also run with a fuzzing client"); attack log rows W1, D3, D5.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

import pytest

from gateway.wire.leg import Leg
from tests.gateway.streams.random_sockets import ENDS, Tally, echoes_in_pieces, fuzz
from tests.gateway.streams.staging import Scene
from tests.gateway.streams.test_sockets import HANDSHAKE

PEOPLE = 8


def heads(scene: Scene) -> dict[str, bytes]:
    """A handshake of each of some customers."""
    exp = int(time.time()) + 3_000
    found = {}
    for number in range(PEOPLE):
        token = scene.issuers.token("customer", sub=f"caller-{number}", exp=exp)
        found[f"caller-{number}"] = (
            b"GET /portal/customer/live HTTP/1.1\r\nHost: gateway.test\r\n"
            + f"Authorization: Bearer {token}\r\nOrigin: https://portal.example\r\n".encode()
            + HANDSHAKE
            + b"\r\n"
        )
    return found


def played(scene: Scene, *, seed: int, sockets: int) -> Tally:
    """A round of it; nothing was anybody else's, and nothing of it stays."""
    scene.play(echoes_in_pieces(seed))
    tally = asyncio.run(fuzz(scene.stage.port, heads(scene), seed=seed, sockets=sockets))
    assert tally.faults == []
    assert tally.ends["late"] <= sockets // 20

    async def rest() -> int:
        async with asyncio.timeout(30):
            while scene.stage.streams._open:  # noqa: ASYNC110 - nobody tells of the last one
                await asyncio.sleep(0.05)
        return len(asyncio.all_tasks())

    assert scene.stage.call(rest()) < 40
    assert len(scene.stage.records.all) == sockets
    return tally


def legs() -> int:
    gc.collect()
    return sum(isinstance(one, Leg) for one in gc.get_objects())


@pytest.mark.timeout(180)
def test_random_sockets_get_their_own_messages_whole_and_in_order(scene: Scene) -> None:
    """A few seconds of it; each way to end was taken."""
    tally = played(scene, seed=7, sockets=400)
    assert set(ENDS) <= set(tally.ends)
    assert tally.messages > 1_000


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_long_run_of_random_sockets_leaves_nothing_behind(scene: Scene) -> None:
    """Ten minutes: memory and legs are afterwards what they were after the first round."""
    began, seed, sockets, messages = time.monotonic(), 100, 0, 0
    first = 0
    while time.monotonic() - began < 600:
        seed += 1
        tally = played(scene, seed=seed, sockets=2_000)
        sockets, messages = sockets + tally.sockets, messages + tally.messages
        now = resident_kib()
        first = first or now
        print(f"{time.monotonic() - began:.0f} s, {sockets} sockets, {messages} messages, "
              f"rss {now} KiB, legs {legs()}", dict(tally.ends), file=sys.stderr)  # fmt: skip
        assert now - first < 32 * 1024
    assert legs() < 100


def resident_kib() -> int:
    """Resident memory of this process, which is both ends."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4
