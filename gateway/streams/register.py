"""Everything that is open, and the one task that looks after it.

The task lives while something is open. It wakes when it is called (`look`) and every second:
then whatever has a reason is decided anew, each stream on its own, so that an issuer who does
not answer holds up nobody else's.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, Protocol

from gateway.holder import SnapshotHolder
from gateway.ingress.limits import Limits
from gateway.telemetry.counters import Counters

EVERY_S: Final = 1.0
AGAIN_S: Final = 30.0
"""How long a decision is believed while nothing is known to have changed."""
SOON_S: Final = 0.5
"""How long the decision that opened a stream is believed. What changed while its upstream was asked
was noticed for what was open by then."""
PROMPT_S: Final = 1.5
"""How long a decision may take after a change; with the second before it, within G5's two."""
PATIENT_S: Final = 10.0
_AT_ONCE: Final = 50
_LOG: Final = logging.getLogger(__name__)


class Sort(StrEnum):
    """What is open."""

    SOCKET = "socket"
    EVENTS = "events"
    BODY = "body"


_PLURAL: Final = {Sort.SOCKET: "sockets", Sort.EVENTS: "event_streams", Sort.BODY: "long_bodies"}


class End(StrEnum):
    """Why we end what is open."""

    NARROWED = "narrowed"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNDECIDED = "undecided"
    DRAIN = "drain"
    LIMIT = "limit"
    IDLE = "idle"

    @property
    def code(self) -> str:
        """What the record of the stream says of it."""
        return f"stream_{self.value}"


class Withdrawals(Protocol):
    """Who tells what nobody announces: consents that ended."""

    async def ended(self, subjects: Collection[str]) -> Mapping[str, End]:
        """Which of these subjects' streams must end, and why."""
        ...


class OpenStream:
    """One open stream.

    ``subject`` is whose it is, empty for an anonymous caller; ``ended`` the reason for which we
    ended it, if we did; ``count`` tells how many messages or events went over it, which is how an
    idle one is known; ``on_silence`` is called when a stream of events has had none for long.
    """

    __slots__ = (
        "_again",
        "_on_end",
        "count",
        "counted",
        "decided_at",
        "deciding",
        "digest",
        "ended",
        "expires_at",
        "on_silence",
        "opened_at",
        "sort",
        "subject",
        "touched_at",
    )

    def __init__(
        self,
        sort: Sort,
        *,
        subject: str,
        digest: str,
        expires_at: float | None,
        again: Callable[[], Awaitable[End | None]],
        on_end: Callable[[End], None],
        now: float,
    ) -> None:
        self.sort = sort
        self.subject = subject
        self.digest = digest
        self.expires_at = expires_at
        self.opened_at = self.touched_at = now
        self.decided_at = now - AGAIN_S + SOON_S
        self.count: Callable[[], int] = lambda: 0
        self.counted = 0
        self.on_silence: Callable[[], None] = lambda: None
        self.deciding: asyncio.Task[None] | None = None
        self.ended: End | None = None
        self._again = again
        self._on_end = on_end

    def end(self, why: End) -> None:
        """End it now; the first reason counts."""
        if self.ended is None:
            self.ended = why
            self._on_end(why)

    async def decide(self, wait_s: float) -> None:
        """Decide anew and end it unless it holds. Nothing that is raised keeps it open."""
        try:
            async with asyncio.timeout(wait_s):
                why = await self._again()
        except TimeoutError:
            why = End.UNDECIDED
        except Exception as error:  # noqa: BLE001 - mapped to an end
            _LOG.error("a stream could not be decided anew: %s", type(error).__name__)
            why = End.UNDECIDED
        if why is not None:
            self.end(why)


class OpenStreams:
    """The streams of one data plane, within the limits in force.

    ``clock`` gives monotonic, ``wall_clock`` epoch seconds.
    """

    def __init__(
        self,
        snapshots: SnapshotHolder,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.draining = False
        self.ends: Counter[tuple[str, ...]] = Counter()
        """Streams that we ended, by sort and reason."""
        self.withdrawals: Withdrawals | None = None
        self.keys: Callable[[], int] = lambda: 0
        """Another number when issuers' keys are others than before."""
        self._keys_seen = 0
        self._snapshots = snapshots
        self._limits = limits
        self._clock = clock
        self._wall_clock = wall_clock
        self._open: dict[OpenStream, None] = {}
        self._called = False
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        snapshots.follow(self.look)

    def publish(self, counters: Counters) -> None:
        """Tell how many are open, and how many we ended, among the counts of this process."""
        counters.family(
            "gateway_streams_ended_total",
            "Streams that the gateway ended, by what they were and why.",
            ("sort", "reason"),
            self.ends,
        )
        for sort, name in _PLURAL.items():
            counters.gauge(
                f"gateway_open_{name}",
                f"Open {name.replace('_', ' ')} of opaque routes.",
                functools.partial(self._count, sort),
            )

    def _count(self, sort: Sort) -> float:
        return float(sum(1 for stream in self._open if stream.sort is sort))

    @contextmanager
    def opened(
        self,
        sort: Sort,
        *,
        subject: str,
        digest: str,
        expires_at: float | None,
        again: Callable[[], Awaitable[End | None]],
        on_end: Callable[[End], None],
    ) -> Iterator[OpenStream]:
        """Register a stream for as long as the block lasts.

        ``digest`` is the policy that allowed it, ``again`` decides anew, ``on_end`` ends it.
        From ``expires_at`` on (epoch seconds, None: never) each second decides whether the
        credential is still believed.
        """
        stream = self.enter(
            sort,
            subject=subject,
            digest=digest,
            expires_at=expires_at,
            again=again,
            on_end=on_end,
        )
        try:
            yield stream
        finally:
            self.leave(stream)

    def enter(
        self,
        sort: Sort,
        *,
        subject: str,
        digest: str,
        expires_at: float | None,
        again: Callable[[], Awaitable[End | None]],
        on_end: Callable[[End], None],
    ) -> OpenStream:
        """As ``opened``; to be left by ``leave``. Cost: 2 us."""

        def ended(why: End) -> None:
            self.ends[sort.value, why.value] += 1
            on_end(why)

        stream = OpenStream(
            sort,
            subject=subject,
            digest=digest,
            expires_at=expires_at,
            again=again,
            on_end=ended,
            now=self._clock(),
        )
        self._open[stream] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._mind(), name="streams")
        elif digest != self._snapshots.current.digest:
            self._wake.set()
        if self.draining and sort is not Sort.BODY:
            asyncio.get_running_loop().call_soon(stream.end, End.DRAIN)
        return stream

    def leave(self, stream: OpenStream) -> None:
        """Forget a stream that is over."""
        if stream not in self._open:
            return
        del self._open[stream]
        if stream.deciding is not None:
            stream.deciding.cancel()
        if not self._open:
            self._empty.set()
            self._wake.set()

    def look(self, *, called: bool = False) -> None:
        """Look after everything now: the policy changed; or, ``called``, something else did that
        a decision may depend on (a revocation, an end of consent)."""
        self._called |= called
        self._wake.set()

    async def drain(self, within_s: float) -> None:
        """End sockets and events because the process ends; return when they have, or in time.

        Bodies may still be finished.
        """
        self.draining = True
        for stream in list(self._open):
            if stream.sort is not Sort.BODY:
                stream.end(End.DRAIN)
        try:
            async with asyncio.timeout(within_s):
                while any(stream.sort is not Sort.BODY for stream in self._open):
                    self._empty.clear()
                    await self._left()
        except TimeoutError:
            _LOG.warning("%d streams have not ended in time", len(self._open))

    async def _left(self) -> None:
        """Return when nothing is open, or a moment later: bodies may be open still."""
        try:
            async with asyncio.timeout(0.1):
                await self._empty.wait()
        except TimeoutError:
            return

    # --- looking after ----------------------------------------------------------------------

    async def _mind(self) -> None:
        try:
            while self._open:
                self._wake.clear()
                keys, self._keys_seen = self._keys_seen, self.keys()
                called, self._called = self._called or keys != self._keys_seen, False
                await self._round(called=called)
                self._ask()
                try:
                    async with asyncio.timeout(EVERY_S):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        except Exception as error:  # noqa: BLE001 - nothing stays open that nobody looks after
            _LOG.error("streams are not looked after: %s", type(error).__name__)
            for stream in list(self._open):
                stream.end(End.UNDECIDED)
        finally:
            self._task = None
            if self._asking is not None:
                self._asking.cancel()

    def _ask(self) -> None:
        """Ask about withdrawals, beside everything else: an answer may take its time."""
        if self.withdrawals is None or (self._asking is not None and not self._asking.done()):
            return
        subjects = {stream.subject for stream in self._open if stream.subject}
        if subjects:
            asked = self._withdrawn(self.withdrawals, subjects)
            self._asking = asyncio.get_running_loop().create_task(asked)

    async def _withdrawn(self, withdrawals: Withdrawals, subjects: Collection[str]) -> None:
        try:
            why = await withdrawals.ended(subjects)
        except Exception as error:  # noqa: BLE001 - mapped to an end
            _LOG.error("withdrawals cannot be asked about: %s", type(error).__name__)
            why = dict.fromkeys(subjects, End.UNDECIDED)
        for stream in list(self._open):
            if stream.subject in why:
                stream.end(why[stream.subject])

    async def _round(self, *, called: bool) -> None:
        begun = 0
        for stream in list(self._open):
            if stream not in self._open:
                continue
            if (why := self._over(stream)) is not None:
                stream.end(why)
            elif self._decide(stream, called=called):
                begun += 1
                if begun % _AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _over(self, stream: OpenStream) -> End | None:
        """Why a stream has had its time."""
        now = self._clock()
        if stream.sort is not Sort.BODY and now - stream.opened_at >= self._limits.stream_s:
            return End.LIMIT
        if (count := stream.count()) != stream.counted:
            stream.counted, stream.touched_at = count, now
        silent_s = now - stream.touched_at
        if stream.sort is Sort.EVENTS and silent_s >= self._limits.events_comment_s:
            stream.touched_at = now
            stream.on_silence()
        idle = stream.sort is Sort.SOCKET and silent_s >= self._limits.stream_idle_s
        return End.IDLE if idle else None

    def _decide(self, stream: OpenStream, *, called: bool) -> bool:
        """Begin to decide anew, where there is a reason."""
        if stream.ended is not None:
            return False
        digest, now = self._snapshots.current.digest, self._clock()
        expired = stream.expires_at is not None and stream.expires_at <= self._wall_clock()
        changed = called or expired or stream.digest != digest
        if not changed and now - stream.decided_at < AGAIN_S:
            return False
        if stream.deciding is not None and not stream.deciding.done():
            if not changed:
                return False
            stream.deciding.cancel()
        stream.digest, stream.decided_at = digest, now
        stream.deciding = asyncio.get_running_loop().create_task(
            stream.decide(PROMPT_S if changed else PATIENT_S)
        )
        return True
