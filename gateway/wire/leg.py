"""One leg of a relayed WebSocket: our end of a connection, from its handshake on.

Two legs that were joined pass messages on as they come, inside of the callback that read them:
no task, no queue. The bytes that wait are those of the other's write buffer.

Laws
    * Before legs are joined nothing is read as a frame; it is held, ``HELD_BYTES_MAX`` at most.
    * A side that does not read stops the other one; for longer than ``stall_s`` it is cut.
    * Pings are between neighbours. Theirs are answered here, of those that come while nobody
      reads our answers the last one; who answers none of ours until the next is lost.
    * An end is noticed once (``ended``); nothing that came after it is read.

Source: RFC 6455 sections 5.5 and 7; attack log rows S12, D3, D5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from websockets.exceptions import ProtocolError
from websockets.frames import Close

from gateway.wire import frames
from gateway.wire.closing import BROKEN, LOST, NO_CODE, NOT_TEXT, TOO_BIG, Closed
from gateway.wire.short import short_way

HELD_BYTES_MAX: Final = 64 * 1024
"""What is held of a side that speaks before the other one is there."""
STALL_S: Final = 30.0
"""How long a side may take nothing of what waits for it."""
_LOG: Final = logging.getLogger("gateway.socket")


def _unheard(_data: bytes) -> None:
    """What takes the reads of a connection that has ended: there are none."""


class Leg(asyncio.Protocol):
    """A connection after its handshake; ``masked``: the other end is a client.

    One class for both legs, without heirs: the interpreter reads attributes of one class fastest.
    ``ended`` tells how the other end, or its bytes, ended the socket. ``sent_bytes`` and
    ``messages`` count what was passed on to it: payloads.
    """

    __slots__ = (
        "_close_s",
        "_drained",
        "_early",
        "_framed",
        "_is_server",
        "_loop",
        "_message_bytes",
        "_more",
        "_other",
        "_owed",
        "_paused",
        "_ping",
        "_ping_s",
        "_reader",
        "_stall",
        "_stall_s",
        "_transport",
        "_turn",
        "_unanswered",
        "data_received",
        "ended",
        "is_open",
        "lost",
        "messages",
        "sent_bytes",
        "stalled",
        "write",
    )

    data_received: Callable[[bytes], None]  # type: ignore[assignment]  # another one once joined
    write: Callable[[bytes], None]

    def __init__(
        self,
        *,
        masked: bool,
        message_bytes: int,
        ping_s: float,
        close_s: float,
        stall_s: float = STALL_S,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Closed] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.stalled = False
        """Whether it was cut because it did not read."""
        self.sent_bytes = self.messages = 0
        self._is_server = masked
        self._framed = frames.unmasked if masked else frames.masked
        self._message_bytes = message_bytes
        self._ping_s, self._close_s, self._stall_s = ping_s, close_s, stall_s
        self._other: Leg | None = None
        self._reader: frames.Reader | None = None
        self._early = bytearray()
        self.is_open = False  # connected, and no close was sent
        self._paused = self._more = False
        self._turn: asyncio.Handle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._unanswered = False
        self._owed: bytes | None = None
        self.data_received = self._received

    def take(self, transport: asyncio.Transport, early: bytes = b"") -> None:
        """Take a connection over, with what was read of it behind the handshake."""
        self._transport = transport
        self.write = transport.write
        self.is_open = True
        transport.set_protocol(self)
        low, _ = transport.get_write_buffer_limits()
        if transport.get_write_buffer_size() > low:
            # of an answer before: who wrote it was told to wait, maybe, and we never would be
            self.pause_writing()
            transport.set_write_buffer_limits(low, low)  # now a transport tells when it is taken
        self._received(early)

    # --- for the relay ----------------------------------------------------------------------

    def join(self, other: Leg) -> None:
        """From now on each message of one is passed on to the other."""
        self._other, other._other = other, self
        self._begin(other)
        other._begin(self)

    def say(self, frame: bytes, size: int) -> None:
        """Pass a message of so many bytes on; nothing once this leg is closed."""
        if self.is_open:
            self.messages += 1
            self.sent_bytes += size
            self.write(frame)

    async def drained(self) -> None:
        """Return when what was passed on is taken but for little, or the leg is lost."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def tell(self, end: Closed) -> None:
        """Say how it ends, as the last word; nothing is passed on any more."""
        if self.is_open and not self._transport.is_closing():
            payload = b"" if end.code == NO_CODE else Close(end.code, end.reason).serialize()
            self.write(self._framed(frames.WHOLE | frames.CLOSE, payload))
        self.is_open = False
        self._go_on()  # the answer stands behind messages that nobody wants any more

    async def gone(self) -> None:
        """Wait for the end of the connection, ``close_s`` at most, then cut it."""
        try:
            async with asyncio.timeout(self._close_s):
                await asyncio.shield(self.lost)
        except TimeoutError:
            pass  # who does not answer a close has nothing more to say
        finally:
            self.abort()

    def leave(self) -> None:
        """Close the connection when its last bytes are taken, which must not take for ever."""
        if not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(self._close_s, self._transport.abort)

    def abort(self) -> None:
        """Cut the connection; nothing that is held of it is wanted."""
        self._early.clear()
        self._transport.abort()

    # --- asyncio ----------------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        if self._reader is None:
            self._early += data
            if len(self._early) > HELD_BYTES_MAX:
                self._pause()
            return
        try:
            if self._reader.feed(data):
                self._more = True
                self._pause()
                self._go_on()
        except frames.Broken as fault:
            self._broken(fault.close_code)
        except UnicodeDecodeError:
            self._broken(NOT_TEXT)
        except Exception as error:  # noqa: BLE001 - the connection ends, nothing is passed on
            _LOG.error("a socket ended by %s", type(error).__name__)
            self.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_open = False
        if self._ping is not None:
            self._ping.cancel()
        if not self.lost.done():
            self.lost.set_result(None)
        self.resume_writing()
        if self._is_server or self._reader is not None or not self._early:
            self._gone()
        # else all that an upstream had to say is held, and read once the legs are joined

    def _gone(self) -> None:
        """Nothing more is read."""
        self._stop()
        self.finish(Closed(LOST))
        # out of the rings that only a full collection would find: it may be a thousand sockets away
        self._other = self._reader = None
        self.data_received = _unheard

    def pause_writing(self) -> None:
        if self._drained is None:
            self._drained = self._loop.create_future()
            self._stall = self._loop.call_later(self._stall_s, self._stalled)
            if self._other is not None:
                self._other._pause()

    def resume_writing(self) -> None:
        if self._drained is None:
            return
        self._drained.set_result(None)
        self._drained = None
        if not self._transport.is_closing():
            self._transport.set_write_buffer_limits()  # others after `take`
        if self._stall is not None:
            self._stall.cancel()
        if self._owed is not None:
            owed, self._owed = self._owed, None
            self._control(frames.PING, owed)
        if self._other is not None:
            self._other._go_on()

    # --- frames -----------------------------------------------------------------------------

    def _begin(self, other: Leg) -> None:
        self._reader = frames.Reader(
            masked=self._is_server,
            message_bytes=self._message_bytes,
            message=other.say,
            control=self._control,
        )
        if not self.lost.done():
            self._ping = self._loop.call_later(self._ping_s, self._beat)
            self.data_received = short_way(self._reader, other, self._received)
            self._transport.set_protocol(self)  # the loop keeps the method that it found
        early, self._early = bytes(self._early), bytearray()
        self._received(early)
        if other._drained is None:
            self._go_on()
        else:
            self._pause()

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == frames.CLOSE:
            self._closed(payload)
        elif opcode == frames.PONG:
            self._unanswered = False
        elif self._drained is not None:
            self._owed = payload
        elif self.is_open:
            self.write(self._framed(frames.WHOLE | frames.PONG, payload))

    def _closed(self, payload: bytes) -> None:
        """A close: answered, and the end of what is read."""
        try:
            close = Close.parse(payload)
        except ProtocolError:
            raise frames.Broken(BROKEN, "a close that is none") from None
        end = Closed(close.code, close.reason)
        self._stop()
        self.finish(end)
        self.tell(end)
        if self._is_server:
            self.leave()

    def _broken(self, close_code: int) -> None:
        self._stop()
        self.finish(Closed(TOO_BIG if close_code == TOO_BIG else LOST))
        self.tell(Closed(close_code))
        if self._is_server:
            self.leave()

    def _beat(self) -> None:
        if not self.is_open or self.ended.done():
            return
        if not self._paused:
            if self._unanswered:
                self.abort()
                return
            self._unanswered = True
            self.write(self._framed(frames.WHOLE | frames.PING, b""))
        self._ping = self._loop.call_later(self._ping_s, self._beat)

    # --- ends and pauses --------------------------------------------------------------------

    def finish(self, end: Closed) -> None:
        """How it ended; the first counts."""
        if not self.ended.done():
            self.ended.set_result(end)

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()

    def _stalled(self) -> None:
        self.stalled = True
        self.abort()

    def _pause(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._more:
            if self._turn is None:
                self._turn = self._loop.call_soon(self._further)
            return
        if self.lost.done():
            self._gone()
        elif self._paused and not self._transport.is_closing():
            self._paused = False
            self._unanswered = False  # its answer may lie among what was not read
            self._transport.resume_reading()

    def _further(self) -> None:
        """Read the next of many frames, unless the other side is held up: then it calls."""
        self._turn = None
        if self.is_open and self._other is not None and self._other._drained is not None:
            return
        self._more = False
        self._received(b"")
        if not self._more:
            self._go_on()
