"""Two legs that are joined: what waits is bounded, and who holds the other up is cut.

Provenance: architecture section 2; attack log rows S12, D3, D5; RFC 6455 sections 5.5 and 7.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from itertools import pairwise

import pytest
import uvloop

from gateway.relay.duplex import By, Relayed, relay_messages
from gateway.relay.stream import Truncated
from gateway.wire import frames
from gateway.wire.closing import LOST, NOT_ALLOWED, Closed
from gateway.wire.leg import HELD_BYTES_MAX, Leg
from tests.gateway.relay.clock import run

EMPTY = b"\x81\x80\x00\x00\x00\x00"
PING = b"\x89\xfd" + b"\x00" * 4 + b"x" * 125
MESSAGE = b"\x82\x7e\x10\x00" + bytes(4096)
WAITING_MAX = 1024 * 1024
"""One read of the loop and the high water of a write buffer, with room to spare."""


@dataclass
class Two:
    """A caller's leg and an upstream's, and the far end of each, which a test speaks for."""

    caller: Leg
    upstream: Leg
    from_caller: socket.socket
    from_upstream: socket.socket

    async def say(self, far: socket.socket, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(far, data)

    async def hear(self, far: socket.socket, size: int) -> bytes:
        loop, heard = asyncio.get_running_loop(), b""
        while len(heard) < size and (piece := await loop.sock_recv(far, 65_536)):
            heard += piece
        return heard

    def waiting(self, leg: Leg) -> int:
        return leg._transport.get_write_buffer_size()


def play(
    scene: Callable[[Two], Awaitable[None]],
    *,
    joined: bool = True,
    before: bytes = b"",
    runs: Callable[[Coroutine[None, None, None]], object] = run,
) -> None:
    """Two legs over real connections, under a clock that does not wait (``runs``).

    ``before`` was written on each by somebody else.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        made: list[tuple[Leg, socket.socket]] = []
        for masked in (True, False):
            ours, theirs = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            theirs.setblocking(False)
            leg = Leg(masked=masked, message_bytes=10_000, ping_s=20, close_s=5)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            transport.write(before)
            leg.take(transport)
            made.append((leg, theirs))
        (caller, one), (upstream, other) = made
        two = Two(caller, upstream, one, other)
        if joined:
            caller.join(upstream)
        try:
            await scene(two)
        finally:
            caller.abort()
            upstream.abort()
            one.close()
            other.close()

    runs(main())


async def flood(two: Two, far: socket.socket, piece: bytes) -> None:
    """Send for as long as anything is taken."""
    loop = asyncio.get_running_loop()
    while True:
        await loop.sock_sendall(far, piece)


async def stuck(task: asyncio.Task[None], leg: Leg) -> None:
    """Return when nothing was taken for a second."""
    before = -1
    while before != (now := leg._transport.get_write_buffer_size()):
        before = now
        await asyncio.sleep(1)
    assert not task.done()


@pytest.mark.parametrize("way", ["down", "up"])
def test_side_that_does_not_read_stops_the_other_and_is_cut(way: str) -> None:
    """D3: what waits is bounded; after half a minute the leg is lost, and told so."""

    async def scene(two: Two) -> None:
        if way == "down":
            slow, far, piece = two.caller, two.from_upstream, MESSAGE
        else:
            slow, far, piece = (
                two.upstream,
                two.from_caller,
                b"\x82\xfe" + MESSAGE[2:4] + bytes(4100),
            )
        sending = asyncio.create_task(flood(two, far, piece * 16))
        await stuck(sending, slow)
        assert 0 < two.waiting(slow) < WAITING_MAX
        began = asyncio.get_running_loop().time()
        assert await asyncio.shield(slow.ended) == Closed(LOST)
        assert slow.stalled
        assert 15 < asyncio.get_running_loop().time() - began < 31
        sending.cancel()

    play(scene)


def test_reader_that_comes_back_gets_all_of_it() -> None:
    """Nothing is lost by waiting, and whoever waited is let on."""

    async def scene(two: Two) -> None:
        sending = asyncio.create_task(two.say(two.from_upstream, MESSAGE * 1_000))
        await stuck(sending, two.caller)
        assert await two.hear(two.from_caller, 1_000 * len(MESSAGE)) == MESSAGE * 1_000
        await sending
        assert (two.caller.messages, two.caller.sent_bytes) == (1_000, 1_000 * 4096)
        assert not two.caller.ended.done()

    play(scene)


@pytest.mark.parametrize("runs", [uvloop.run, run], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("size", [200_000, 40_000], ids=["more than may wait", "less"])
def test_side_that_has_not_read_what_came_before_stops_the_other_too(
    runs: Callable[[Coroutine[None, None, None]], object], size: int
) -> None:
    """Whoever wrote that was told to wait, or nobody was; the leg itself is never told so."""
    before = b"b" * size

    async def scene(two: Two) -> None:
        sending = asyncio.create_task(two.say(two.from_upstream, MESSAGE * 1_000))
        for _ in range(2_000):
            await asyncio.sleep(0)
        assert not sending.done()
        assert two.waiting(two.caller) < size + WAITING_MAX
        whole = before + MESSAGE * 1_000
        assert await two.hear(two.from_caller, len(whole)) == whole
        await sending
        assert two.caller._drained is None

    play(scene, before=before, runs=runs)


def test_side_that_never_reads_what_came_before_is_cut() -> None:
    """D3: as any other that does not read."""

    async def scene(two: Two) -> None:
        assert await asyncio.shield(two.caller.ended) == Closed(LOST)
        assert two.caller.stalled

    play(scene, before=bytes(200_000))


def test_side_that_is_held_up_is_not_blamed_for_a_pong_that_nobody_read() -> None:
    """Its answer lies behind messages that we did not read; who holds it up is cut."""

    async def scene(two: Two) -> None:
        await asyncio.sleep(15)
        sending = asyncio.create_task(flood(two, two.from_upstream, MESSAGE * 16))
        assert await asyncio.shield(two.caller.ended) == Closed(LOST)
        assert not two.upstream.ended.done()
        sending.cancel()

    play(scene)


def test_side_that_was_held_up_has_another_interval_to_answer() -> None:
    """Its pong may lie among what was not read in the meantime."""

    async def scene(two: Two) -> None:
        async def answers() -> None:
            while await two.hear(two.from_caller, 2):
                await two.say(two.from_caller, b"\x8a\x80" + bytes(4))

        answering = asyncio.create_task(answers())
        await asyncio.sleep(21)
        two.caller.pause_writing()
        await asyncio.sleep(18)
        two.caller.resume_writing()
        await asyncio.sleep(20)
        assert not two.upstream.ended.done()
        await asyncio.sleep(2)
        assert two.upstream.ended.done()
        answering.cancel()

    play(scene)


def test_flood_before_legs_are_joined_is_held_within_bounds() -> None:
    """S12: bytes, not frames; then nothing of it is lost."""

    async def scene(two: Two) -> None:
        sending = asyncio.create_task(two.say(two.from_caller, EMPTY * 200_000))
        await asyncio.sleep(1)
        assert not sending.done()
        assert len(two.caller._early) <= HELD_BYTES_MAX + 256 * 1024
        assert two.caller._reader is None
        two.caller.join(two.upstream)
        heard = await two.hear(two.from_upstream, 200_000 * len(EMPTY))
        assert len(heard) == 200_000 * len(EMPTY)
        await sending

    play(scene, joined=False)


def test_many_frames_in_one_read_let_others_have_their_turn() -> None:
    """A flood of nothing costs its sender's turn, not everybody's; none of it is lost."""

    async def scene(two: Two) -> None:
        count, passed = 50 * frames.FRAMES_AT_ONCE, []

        def looks() -> None:
            passed.append(two.upstream.messages)
            if passed[-1] < count:
                asyncio.get_running_loop().call_soon(looks)

        two.caller.data_received(EMPTY * count)
        looks()
        assert len(await two.hear(two.from_upstream, count * len(EMPTY))) == count * len(EMPTY)
        steps = [after - before for before, after in pairwise([0, *passed])]
        assert max(steps) == frames.FRAMES_AT_ONCE
        assert two.caller._transport.is_reading()

    play(scene)


def test_close_behind_many_frames_is_found_after_them() -> None:
    """Also when our own close came first, and nobody wants them."""

    async def scene(two: Two) -> None:
        two.caller.tell(Closed(NOT_ALLOWED))
        two.caller.data_received(EMPTY * 5_000 + b"\x88\x82\x00\x00\x00\x00\x03\xe8")
        assert await asyncio.shield(two.caller.ended) == Closed(1000)
        assert await two.hear(two.from_caller, 100) == b"\x88\x02\x03\xf0"

    play(scene)


def test_pings_of_a_side_that_reads_no_pong_fill_no_memory() -> None:
    """The last of them is answered when it reads again (section 5.5.3)."""

    async def scene(two: Two) -> None:
        last = b"\x89\x84" + bytes(4) + b"last"
        await two.say(two.from_caller, PING * 40_000 + last)
        assert two.waiting(two.caller) < WAITING_MAX
        heard = b""
        while not heard.endswith(b"\x8a\x04last"):
            heard += await two.hear(two.from_caller, 1)
        assert len(heard) < 40_000 * 127

    play(scene)


def test_side_that_answers_no_ping_is_lost() -> None:
    """Within two intervals; the other side, which answers, is not."""

    async def scene(two: Two) -> None:
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()

        async def answers() -> None:
            while await two.hear(two.from_upstream, 6):
                await two.say(two.from_upstream, b"\x8a\x00")

        answering = asyncio.create_task(answers())
        assert await asyncio.shield(two.caller.ended) == Closed(LOST)
        assert 39 < loop.time() - began < 42
        assert not two.caller.stalled
        assert not two.upstream.ended.done()
        answering.cancel()

    play(scene)


def test_nothing_is_passed_on_after_the_last_word() -> None:
    """O15: from the moment that it is told, in both directions."""

    async def scene(two: Two) -> None:
        two.caller.tell(Closed(NOT_ALLOWED, "no"))
        two.upstream.tell(Closed(1001))
        await two.say(two.from_upstream, b"\x81\x02no\x88\x02\x03\xe8")
        await two.say(
            two.from_caller, b"\x81\x82\x00\x00\x00\x00no\x88\x82\x00\x00\x00\x00\x03\xf0"
        )
        await asyncio.shield(two.caller.ended)
        await asyncio.shield(two.upstream.ended)
        assert (two.caller.messages, two.upstream.messages) == (0, 0)
        assert await two.hear(two.from_caller, 100) == b"\x88\x04\x03\xf0no"

    play(scene)


def test_second_close_is_not_answered_and_what_follows_is_not_read() -> None:
    """Section 5.5.1: one close each; a message behind it is nobody's."""

    async def scene(two: Two) -> None:
        close = b"\x88\x82\x00\x00\x00\x00\x0f\xa1"
        await two.say(two.from_caller, close + b"\x81\x81\x00\x00\x00\x00x" + close)
        assert await asyncio.shield(two.caller.ended) == Closed(4001)
        assert await two.hear(two.from_caller, 100) == b"\x88\x02\x0f\xa1"
        assert two.upstream.messages == 0

    play(scene)


@pytest.mark.parametrize(
    "payload", [b"\x03", b"\x03\xee", b"\x03\xed", b"\x00\x00", b"\x03\xe7", b"\x13\x88"]
)
def test_close_with_a_code_that_may_not_be_sent_is_a_loss(payload: bytes) -> None:
    """Section 7.4: one byte, 1006, 1005, 0, 999, 5000."""

    async def scene(two: Two) -> None:
        await two.say(two.from_upstream, bytes((0x88, len(payload))) + payload)
        assert await asyncio.shield(two.upstream.ended) == Closed(LOST)
        told = await two.hear(two.from_upstream, 8)
        assert told[0] == 0x88
        assert bytes(a ^ b for a, b in zip(told[6:], told[2:4], strict=True)) == b"\x03\xea"

    play(scene)


def test_defect_of_ours_cuts_the_connection() -> None:
    """Nothing is passed on that could not be read to its end."""

    async def scene(two: Two) -> None:
        def fails(frame: bytes, size: int) -> None:
            raise ZeroDivisionError

        assert two.caller._reader is not None
        two.caller._reader = frames.Reader(
            masked=True, message_bytes=10, message=fails, control=two.caller._control
        )
        await two.say(two.from_caller, EMPTY)
        assert await asyncio.shield(two.caller.ended) == Closed(LOST)

    play(scene)


def test_close_is_read_behind_messages_that_nobody_wants_any_more() -> None:
    """A side that was held up is read on once it was told the end."""

    async def scene(two: Two) -> None:
        two.caller.pause_writing()
        two.upstream.tell(Closed(1001))
        await two.say(two.from_upstream, MESSAGE * 3 + b"\x88\x02\x03\xe9")
        async with asyncio.timeout(5):  # before the caller is cut for not reading
            assert await asyncio.shield(two.upstream.ended) == Closed(1001)

    play(scene)


def test_last_bytes_that_nobody_takes_do_not_hold_a_connection() -> None:
    """A caller that said its close and reads nothing is cut after ``close_s``."""

    async def scene(two: Two) -> None:
        two.upstream.data_received(MESSAGE * 60)
        assert two.waiting(two.caller) > 0
        await two.say(two.from_caller, b"\x88\x82\x00\x00\x00\x00\x03\xe8")
        await asyncio.shield(two.caller.ended)
        async with asyncio.timeout(6):
            await asyncio.shield(two.caller.lost)

    play(scene)


def test_end_comes_after_all_that_a_slow_caller_still_has_to_read() -> None:
    """An upstream that said its last word is not the caller's reason to lose what it had said."""

    async def scene(two: Two) -> None:
        end: asyncio.Future[Closed] = asyncio.get_running_loop().create_future()
        relaying = asyncio.create_task(relay_messages(two.caller, two.upstream, end=end))
        await asyncio.sleep(0)
        two.upstream.data_received(MESSAGE * 60 + b"\x88\x02\x03\xe8")
        await asyncio.sleep(15)
        size = 60 * len(MESSAGE) + 4
        assert await two.hear(two.from_caller, size) == MESSAGE * 60 + b"\x88\x02\x03\xe8"
        two.from_caller.close()
        assert await relaying == Relayed(by=By.UPSTREAM, end=Closed(1000))

    play(scene, joined=False)


def test_our_own_end_does_not_wait_for_a_slow_caller() -> None:
    """What is not allowed any more is told behind what was under way, and then cut."""

    async def scene(two: Two) -> None:
        loop = asyncio.get_running_loop()
        end: asyncio.Future[Closed] = loop.create_future()
        relaying = asyncio.create_task(relay_messages(two.caller, two.upstream, end=end))
        await asyncio.sleep(0)
        two.upstream.data_received(MESSAGE * 60 + b"\x88\x02\x03\xe8")
        await asyncio.sleep(1)
        began = loop.time()
        end.set_result(Closed(NOT_ALLOWED))
        await relaying
        assert loop.time() - began < 6

    play(scene, joined=False)


def test_caller_that_does_not_read_is_no_proper_end() -> None:
    """Its connection was cut, and whoever relayed is told so."""

    async def scene(two: Two) -> None:
        end: asyncio.Future[Closed] = asyncio.get_running_loop().create_future()
        relaying = asyncio.create_task(relay_messages(two.caller, two.upstream, end=end))
        await asyncio.sleep(0)
        two.upstream.data_received(MESSAGE * 60)
        with pytest.raises(Truncated):
            await relaying

    play(scene, joined=False)


@pytest.mark.parametrize("runs", [uvloop.run, run], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("count", [1, frames.FRAMES_AT_ONCE + 1])
@pytest.mark.parametrize("end", [b"\x88\x02\x0f\xa1", b""], ids=["a close", "none"])
def test_upstream_that_has_gone_before_legs_are_joined_is_read_to_its_end(
    runs: Callable[[Coroutine[None, None, None]], object], count: int, end: bytes
) -> None:
    """Many a server says why, and leaves at once."""

    async def scene(two: Two) -> None:
        await two.say(two.from_upstream, b"\x81\x01y" * count + end)
        two.from_upstream.close()
        await two.upstream.lost
        open_end: asyncio.Future[Closed] = asyncio.get_running_loop().create_future()
        relaying = asyncio.create_task(relay_messages(two.caller, two.upstream, end=open_end))
        code = 4001 if end else 1011
        heard = await two.hear(two.from_caller, 3 * count + 4)
        assert heard == b"\x81\x01y" * count + b"\x88\x02" + code.to_bytes(2, "big")
        two.from_caller.close()
        assert await relaying == Relayed(by=By.UPSTREAM, end=Closed(4001 if end else LOST))

    play(scene, joined=False, runs=runs)


def test_caller_that_has_gone_before_legs_are_joined_is_known_to_have_gone() -> None:
    """Whoever dials for it must not wait."""

    async def scene(two: Two) -> None:
        await two.say(two.from_caller, EMPTY)
        two.from_caller.close()
        assert await two.caller.ended == Closed(LOST)

    play(scene, joined=False)


def test_loop_of_the_gateway_asks_the_short_way_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the method of a protocol that it once found, so it must be told of another."""
    found: list[bytes] = []

    def way(
        _reader: object, _out: object, otherwise: Callable[[bytes], None]
    ) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            found.append(data)
            otherwise(data)

        return take

    monkeypatch.setattr("gateway.wire.leg.short_way", way)

    async def scene(two: Two) -> None:
        await two.say(two.from_caller, EMPTY)
        assert len(await two.hear(two.from_upstream, len(EMPTY))) == len(EMPTY)

    play(scene, runs=uvloop.run)
    assert EMPTY in found


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "refused"])
@pytest.mark.parametrize("runs", [uvloop.run, run], ids=["uvloop", "asyncio"])
def test_legs_that_have_ended_are_gone_before_the_collector_comes(
    runs: Callable[[Coroutine[None, None, None]], object], joined: bool
) -> None:
    """What a caller left unfinished would be held until it does, a thousand sockets later."""

    async def scene(two: Two) -> None:
        await two.say(two.from_caller, EMPTY + b"\x02\x81\x00\x00\x00\x00x")
        await two.say(two.from_upstream, b"\x81\x01y\x02\x01x\x00\x10")
        if joined:
            assert len(await two.hear(two.from_upstream, len(EMPTY))) == len(EMPTY)
            assert await two.hear(two.from_caller, 3) == b"\x81\x01y"
        two.from_caller.close()
        await two.caller.lost
        two.upstream.abort()
        await two.upstream.lost

    gc.collect()
    before = legs()
    gc.disable()
    try:
        play(scene, joined=joined, runs=runs)
        assert legs() <= before
    finally:
        gc.enable()


def legs() -> int:
    """How many there are. A proxy of something that has gone says its class by raising."""
    return sum(type(one) is Leg for one in gc.get_objects())
