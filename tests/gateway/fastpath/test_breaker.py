"""An upstream that is left alone: what the lane would have asked is refused as everything is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gateway.relay.address import Address
from gateway.relay.fleet import Fleet
from gateway.relay.hop import Target
from gateway.relay.upstream import UpstreamTimes
from tests.gateway.fastpath.asking import Caller, forget, head, left_by, playing, warm
from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.stage import OK, Stage

FAILURES = 3
OPEN_S = 1_000.0


class Clock:
    """Monotonic seconds, moved on by the test."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@contextmanager
def breaking(stage: Stage, clock: Clock) -> Iterator[Fleet]:
    """The customer portal behind a breaker that opens after ``FAILURES`` for ``OPEN_S``."""
    was = stage.hop._targets
    port = int(was["customer-portal"].authority.rpartition(b":")[2])
    fleet = Fleet(
        addresses=[Address(host="127.0.0.1", port=port)],
        times=UpstreamTimes(connect_s=2, first_byte_s=2, idle_s=2, write_s=2),
        failures_max=FAILURES,
        open_s=OPEN_S,
        clock=clock,
    )
    there = Target(was["customer-portal"].authority, fleet.transport, fleet.socket)
    _retarget(stage, {**was, "customer-portal": there})
    try:
        yield fleet
    finally:
        _retarget(stage, was)


def _retarget(stage: Stage, targets: Mapping[str, Target]) -> None:
    async def move() -> None:
        for transports in stage.hop.retarget(targets, {"customer-portal"}).values():
            for transport in transports:
                await transport.aclose()

    stage.call(move())


def dying(well: list[bool]) -> Script:
    """An upstream that answers while it is ``well``, else takes the request and hangs up."""

    async def script(peer: Peer) -> None:
        while await peer.request():
            if not well[0]:
                peer.reset()
                return
            await peer.say(OK)

    return script


def test_open_breaker_refuses_a_known_caller_as_it_does_a_stranger(stage: Stage) -> None:
    """Byte for byte, with the same record and not one byte to the upstream; failures of requests
    that began in the lane count, and once the time is over a single trial heals it, after which
    the lane goes on."""
    clock, well, raw = Clock(), [True], head(stage)
    with breaking(stage, clock) as fleet, playing(stage, dying(well)):
        (backend,) = fleet.backends
        with Caller(stage) as caller:
            warm(stage, caller, raw)
            before = stage.lane.taken
            warm(stage, caller, raw)
            assert stage.lane.taken == before + 1
            well[0] = False
            for _ in range(FAILURES):
                assert caller.ask(raw).startswith(b"HTTP/1.1 502")
            assert stage.lane.taken > before + 1  # the first failure began here
            assert backend.breaker.state == "open"
            assert backend.under_way == 0

            known = left_by(stage, caller, raw)
            forget(stage)
            unknown = left_by(stage, caller, raw)
            assert known == unknown
            assert known.answer.startswith(b"HTTP/1.1 502")
            assert b'"code":"upstream_unavailable"' in known.answer
            assert known.asked == ()

            well[0] = True
            clock.ahead_s = OPEN_S + 1
            warm(stage, caller, raw)
            assert backend.breaker.state == "closed"
            before = stage.lane.taken
            warm(stage, caller, raw)
            assert stage.lane.taken == before + 1


def test_trial_that_begins_in_the_lane_is_the_only_one(stage: Stage) -> None:
    """Half open with a connection still kept: the trial may be a known caller's. While it is under
    way nobody else's request is sent, and its answer counts."""
    clock, raw, holds, gate = Clock(), head(stage), [False], threading.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            if holds[0]:
                await asyncio.to_thread(gate.wait, 10)
            await peer.say(OK)

    with breaking(stage, clock) as fleet, playing(stage, script) as portal:
        (backend,) = fleet.backends
        with Caller(stage) as caller, Caller(stage) as other:
            warm(stage, caller, raw)
            warm(stage, other, raw)

            async def fail() -> None:
                for _ in range(FAILURES):
                    backend.breaker.failed()

            stage.call(fail())
            for one in (caller, other):
                assert one.ask(raw).startswith(b"HTTP/1.1 502")
            asked, taken, holds[0] = len(portal.requests), stage.lane.taken, True
            clock.ahead_s = OPEN_S + 1
            caller.sock.sendall(raw)
            while len(portal.requests) == asked:
                threading.Event().wait(0.01)
            assert stage.lane.taken == taken + 1
            assert other.ask(raw).startswith(b"HTTP/1.1 502")
            assert len(portal.requests) == asked + 1
            holds[0] = False
            gate.set()
            assert caller.answer().startswith(b"HTTP/1.1 200")
            assert backend.breaker.state == "closed"
            warm(stage, other, raw)
            assert backend.under_way == 0
