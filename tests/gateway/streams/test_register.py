"""The task that looks after open streams, on clocks of the test's own.

Provenance: architecture G5; issue 4 part 3 ("absolute cap", idle limits).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.holder import SnapshotHolder
from gateway.ingress.limits import Limits
from gateway.streams.register import End, OpenStream, OpenStreams, Sort
from policies.snapshot import Snapshot
from tests.gateway.relay.clock import run

LIMITS = Limits(stream_s=100, stream_idle_s=10)


@dataclass
class World:
    """Streams under one policy; what each decision says, and how often it was asked."""

    holder: SnapshotHolder
    streams: OpenStreams
    digest: str
    says: End | None = None
    asked: int = 0
    ends: list[End] = field(default_factory=list)

    async def again(self) -> End | None:
        self.asked += 1
        return self.says

    def open(
        self,
        sort: Sort = Sort.SOCKET,
        *,
        again: Callable[[], Awaitable[End | None]] | None = None,
        subject: str = "",
        digest: str = "",
        expires_at: float | None = None,
    ) -> OpenStream:
        return self.streams.enter(
            sort,
            subject=subject,
            digest=digest or self.digest,
            expires_at=expires_at,
            again=again or self.again,
            on_end=self.ends.append,
        )


def play(snapshot: Snapshot, scene: Callable[[World], Awaitable[Any]]) -> None:
    """On a virtual clock: waiting costs nothing."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        holder = SnapshotHolder(snapshot)
        streams = OpenStreams(holder, LIMITS, clock=loop.time, wall_clock=loop.time)
        world = World(holder, streams, snapshot.digest)
        await scene(world)
        for stream in list(streams._open):
            streams.leave(stream)
        await asyncio.sleep(2)

    run(main())


def test_quiet_stream_is_decided_anew_soon_and_every_half_minute(believing: Snapshot) -> None:
    """Also when nobody says that anything changed: that may have been before it was open."""

    async def scene(world: World) -> None:
        world.open(Sort.BODY)
        await asyncio.sleep(1.5)
        assert world.asked == 1
        await asyncio.sleep(93.5)
        assert world.asked == 4
        assert world.ends == []

    play(believing, scene)


def test_whoever_calls_has_everything_decided_at_once(believing: Snapshot) -> None:
    """The door for a revocation that somebody else hears of."""

    async def scene(world: World) -> None:
        world.open()
        world.open(Sort.BODY)
        await asyncio.sleep(0.1)
        world.says = End.NARROWED
        world.streams.look(called=True)
        await asyncio.sleep(0.01)
        assert world.ends == [End.NARROWED, End.NARROWED]

    play(believing, scene)


def test_decision_under_an_older_policy_is_made_anew_at_once(believing: Snapshot) -> None:
    """The policy moved between the decision and the registration."""

    async def scene(world: World) -> None:
        world.open()
        await asyncio.sleep(0.1)
        world.open(digest="older")
        await asyncio.sleep(0.01)
        assert world.asked == 1

    play(believing, scene)


def test_activation_has_everything_decided_at_once(believing: Snapshot, snapshot: Snapshot) -> None:
    """The holder tells; nobody waits for the next look."""

    async def scene(world: World) -> None:
        world.open()
        await asyncio.sleep(0.1)
        world.holder.prepare(snapshot)
        assert world.holder.advance(snapshot.digest)
        await asyncio.sleep(0.01)
        assert world.asked == 1

    play(believing, scene)


@pytest.mark.parametrize("fault", ["hangs", "raises"])
def test_what_cannot_be_decided_in_time_is_ended(believing: Snapshot, fault: str) -> None:
    """Fail closed, within two seconds of the change."""

    async def scene(world: World) -> None:
        async def again() -> End | None:
            if fault == "raises":
                raise RuntimeError("a defect")
            await asyncio.sleep(1_000)
            return None

        world.open(again=again)
        world.open()
        await asyncio.sleep(0.5)
        world.streams.look(called=True)
        await asyncio.sleep(2)
        assert world.ends == [End.UNDECIDED]
        assert world.asked == 1

    play(believing, scene)


def test_change_does_not_wait_for_a_patient_decision(believing: Snapshot) -> None:
    """An issuer that answers late costs its own streams, and only when something changed."""

    async def scene(world: World) -> None:
        slow = asyncio.Event()

        async def again() -> End | None:
            world.asked += 1
            await slow.wait()
            return None

        world.open(Sort.BODY, again=again)
        await asyncio.sleep(2)
        assert (world.asked, world.ends) == (1, [])
        world.streams.look(called=True)
        await asyncio.sleep(0.1)
        assert world.asked == 2
        await asyncio.sleep(2)
        assert world.ends == [End.UNDECIDED]

    play(believing, scene)


def test_streams_have_their_time(believing: Snapshot) -> None:
    """Sockets end when they are idle, sockets and events after their time, bodies do not."""

    async def scene(world: World) -> None:
        messages = 0
        idle, busy = world.open(), world.open()
        busy.count = lambda: messages
        events, body = world.open(Sort.EVENTS), world.open(Sort.BODY)
        for _ in range(20):
            await asyncio.sleep(6)
            messages += 1
        found = [one.ended for one in (idle, busy, events, body)]
        assert found == [End.IDLE, End.LIMIT, End.LIMIT, None]
        for one in (idle, busy, events, body):
            world.streams.leave(one)
        assert world.streams.ends == {("socket", "idle"): 1, ("socket", "limit"): 1,
                                      ("events", "limit"): 1}  # fmt: skip

    play(believing, scene)


def test_credential_that_ended_is_asked_about_each_second(believing: Snapshot) -> None:
    """Whether it is believed still is the authenticator's to say; when it is not, the end."""

    async def scene(world: World) -> None:
        world.open(expires_at=asyncio.get_running_loop().time() + 5)
        await asyncio.sleep(8.5)
        assert world.asked in {4, 5}  # the first soon after it opened
        world.says = End.EXPIRED
        await asyncio.sleep(2)
        assert world.ends == [End.EXPIRED]

    play(believing, scene)


class Withdrawing:
    """Says of these subjects that they lost something; asked at these moments."""

    def __init__(self) -> None:
        self.why: dict[str, End] = {}
        self.asked: list[set[str]] = []
        self.fault: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def ended(self, subjects: Collection[str]) -> Mapping[str, End]:
        self.asked.append(set(subjects))
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        return self.why


def test_withdrawal_ends_what_is_open_to_that_subject_within_two_seconds(
    believing: Snapshot,
) -> None:
    """G5: sockets, events and bodies; nobody else's, and an anonymous caller's never."""

    async def scene(world: World) -> None:
        told = world.streams.withdrawals = Withdrawing()
        others = [world.open(Sort.BODY, subject="s.2"), world.open(Sort.BODY)]
        hers = [world.open(sort, subject="s.1") for sort in Sort]
        await asyncio.sleep(3)
        assert all(one == {"s.1", "s.2"} for one in told.asked)
        told.why = {"s.1": End.NARROWED}
        await asyncio.sleep(2)
        assert [one.ended for one in hers] == [End.NARROWED] * 3
        assert [one.ended for one in others] == [None, None]

    play(believing, scene)


def test_question_without_an_answer_holds_up_no_other_decision(believing: Snapshot) -> None:
    """A store that is slow is asked once at a time, and expired credentials still end."""

    async def scene(world: World) -> None:
        told = world.streams.withdrawals = Withdrawing()
        told.answers.clear()
        world.says = End.EXPIRED
        world.open(subject="s.1", expires_at=asyncio.get_running_loop().time() + 3)
        await asyncio.sleep(5)
        assert world.ends == [End.EXPIRED]
        assert len(told.asked) == 1

    play(believing, scene)


def test_question_that_fails_otherwise_than_expected_ends_whom_it_was_about(
    believing: Snapshot,
) -> None:
    """Whatever cannot be known is not allowed."""

    async def scene(world: World) -> None:
        told = world.streams.withdrawals = Withdrawing()
        told.fault = ZeroDivisionError()
        known, nobody = world.open(subject="s.1"), world.open()
        await asyncio.sleep(0.1)
        assert (known.ended, nobody.ended) == (End.UNDECIDED, None)

    play(believing, scene)


def test_other_keys_of_an_issuer_have_everything_decided_anew(believing: Snapshot) -> None:
    """G5: a key that was withdrawn is a revocation; once per change, within a second."""

    async def scene(world: World) -> None:
        generation = 7
        world.streams.keys = lambda: generation
        await asyncio.sleep(0.1)
        world.open()
        await asyncio.sleep(1.5)
        asked = world.asked
        generation = 8
        world.says = End.EXPIRED
        await asyncio.sleep(1.1)
        assert world.ends == [End.EXPIRED]
        assert world.asked == asked + 1

    play(believing, scene)


def test_drain_waits_for_those_that_it_ended(believing: Snapshot) -> None:
    """Sockets and events; one that comes late is ended as well, a body never."""

    async def scene(world: World) -> None:
        stream, body = world.open(), world.open(Sort.BODY)
        draining = asyncio.create_task(world.streams.drain(5))
        await asyncio.sleep(0.1)
        late = world.open(Sort.EVENTS)
        await asyncio.sleep(0.1)
        assert world.ends == [End.DRAIN, End.DRAIN]
        assert not draining.done()
        world.streams.leave(stream)
        world.streams.leave(late)
        await asyncio.sleep(0.2)
        assert draining.done()
        assert body.ended is None

    play(believing, scene)


def test_nobody_is_looked_after_when_nothing_is_open(believing: Snapshot) -> None:
    """The task lives no longer than the last stream, and comes again with the next."""

    async def scene(world: World) -> None:
        for _ in range(3):
            stream = world.open()
            await asyncio.sleep(0.1)
            world.streams.leave(stream)
            await asyncio.sleep(0.1)
            assert world.streams._task is None

    play(believing, scene)
