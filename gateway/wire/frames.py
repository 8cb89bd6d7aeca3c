"""Frames of a WebSocket: bytes into whole messages, and messages into frames.

No object is made of a frame: its header is read where it lies, and a message leaves as the frame
that the other side is to get. Masks are the work of `websockets`, in C.

Laws
    * One reading or none: reserved bits, unknown opcodes, a mask where none may be or none where
      one must be, lengths that are not the shortest, long or fragmented control frames, a
      continuation of nothing and a message inside a message break the connection.
    * A message is passed on whole: its size is known and bounded before its bytes are held, and
      text is UTF-8.
    * A key masks one frame and is unpredictable (section 5.3).

Source: RFC 6455 section 5; attack log rows W1, S12, D3.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Final

from websockets.frames import apply_mask  # type: ignore[attr-defined]  # in C where it was built

from gateway.errors import GatewayError
from gateway.wire.closing import BROKEN, TOO_BIG

CONTINUED: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA
WHOLE: Final = 0x80
"""With an opcode: the first byte of a frame that is a whole message."""
WHOLE_TEXT: Final = WHOLE | TEXT
WHOLE_BINARY: Final = WHOLE | BINARY
CONTROL_BYTES_MAX: Final = 125
FRAMES_AT_ONCE: Final = 1_000
"""A read of the loop may bring 40,000 empty frames, which would keep everybody waiting."""
_TURN: Final = range(FRAMES_AT_ONCE)
WHOLES: Final = (WHOLE_TEXT, WHOLE_BINARY)
MASKED: Final = 0x80
_RESERVED: Final = 0x70
_KEY_BYTES: Final = 4
_SHORT: Final = struct.Struct("!BB").pack
_MIDDLE: Final = struct.Struct("!BBH").pack
_LONG: Final = struct.Struct("!BBQ").pack


class Broken(GatewayError):
    """Bytes with no reading that may be passed on. ``close_code`` is what their sender hears."""

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(reason)
        self.close_code = close_code


class Reader:
    """The frames of one side, read as they come.

    ``masked`` says whether the side is a client; what it says is for a server then, and the other
    way round. ``message(frame, size)`` takes each whole message as the one frame that the other
    side is to get, and the bytes of its payload; ``control(opcode, payload)`` takes the rest.
    Held is one unfinished message, at most ``message_bytes`` and what one read brought.
    ``is_calm``: nothing is held or over, the next byte begins a message.
    """

    __slots__ = ("_control", "_held", "_key_bytes", "_left", "_mark", "_message", "_need",
                 "_opcode", "_over", "_whole", "is_calm", "is_masked", "message_bytes")  # fmt: skip

    def __init__(
        self,
        *,
        masked: bool,
        message_bytes: int,
        message: Callable[[bytes, int], None],
        control: Callable[[int, bytes], None],
    ) -> None:
        self.is_masked = masked
        self.message_bytes = self._left = message_bytes
        self._mark = MASKED if masked else 0
        self._key_bytes = _KEY_BYTES if masked else 0
        self._message = message
        self._control = control
        self._held = bytearray()
        self._need = 0
        self._opcode = CONTINUED  # of the message that is unfinished
        self._whole = bytearray()  # one buffer: many small pieces would take many times their size
        self._over = False
        self.is_calm = True

    def stop(self) -> None:
        """Read nothing more, not even what is here."""
        self._over, self.is_calm = True, False
        self._held.clear()
        self._whole = bytearray()  # of a message that nobody gets, up to all that one may have

    def feed(self, data: bytes) -> bool:
        """Take what arrived. True when there may be more in it than ``FRAMES_AT_ONCE``: let
        others have their turn, and feed nothing.

        Raises: Broken; UnicodeDecodeError. It must be stopped then.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._need:
                return False
            data = bytes(self._held)
            self._held.clear()
        at, end, need, key_bytes, more = 0, len(data), 2, self._key_bytes, False
        for _ in _TURN:
            if end - at < 2 or self._over:
                break
            first, size, body = data[at], data[at + 1] ^ self._mark, at + 2
            if size > CONTROL_BYTES_MAX:
                body += _wide(size)
                if body > end:
                    need = body - at
                    break
                size = _shortest(data[at + 2 : body])
            is_whole = first in WHOLES
            if not is_whole or self._opcode or size > self.message_bytes:
                self._check(first, size)
            start = body + key_bytes
            stop = start + size
            if stop > end:
                need = stop - at
                break
            payload = data[start:stop]
            if key_bytes:
                payload = apply_mask(payload, data[body:start])
            if is_whole:
                if first == WHOLE_TEXT and not payload.isascii():
                    payload.decode()
                self._message(masked(first, payload) if key_bytes else data[at:stop], size)
            elif first & 0x8:
                self._control(first & 0xF, payload)
            else:
                self._fragment(first, payload)
            at = stop
        else:
            more = True
        if self._over or at == end:
            self.is_calm = not (self._over or self._opcode)
            return False
        self.is_calm = False
        self._held += data[at:]
        self._need = need
        return more

    def _check(self, first: int, size: int) -> None:
        """Whether a frame with this first byte may stand here."""
        opcode = first & 0xF
        if first & _RESERVED:
            raise Broken(BROKEN, "a reserved bit")
        if opcode in (CLOSE, PING, PONG):
            if not first & WHOLE or size > CONTROL_BYTES_MAX:
                raise Broken(BROKEN, "a control frame that is long or fragmented")
            return
        if opcode not in (CONTINUED, TEXT, BINARY):
            raise Broken(BROKEN, "an unknown opcode")
        if (opcode == CONTINUED) != (self._opcode != CONTINUED):
            raise Broken(BROKEN, "a fragment out of place")
        if size > self._left:
            raise Broken(TOO_BIG, "a message that is too big")

    def _fragment(self, first: int, payload: bytes) -> None:
        self._opcode = self._opcode or first & 0xF
        self._left -= len(payload)
        self._whole += payload
        if first & WHOLE:
            whole, first = bytes(self._whole), WHOLE | self._opcode
            self._whole, self._opcode, self._left = bytearray(), CONTINUED, self.message_bytes
            if first == WHOLE_TEXT:
                whole.decode()
            self._message((masked if self._key_bytes else unmasked)(first, whole), len(whole))


def _wide(size: int) -> int:
    """How many bytes of length follow. Raises: Broken."""
    if size > 127:
        raise Broken(BROKEN, "a mask where none may be, or none where one must be")
    return 2 if size == 126 else 8


def _shortest(length: bytes) -> int:
    """The length that these two or eight bytes say. Raises: Broken."""
    size = int.from_bytes(length, "big")
    if size < (126 if len(length) == 2 else 1 << 16) or size >= 1 << 63:
        raise Broken(BROKEN, "a length with more than one form")
    return size


def unmasked(first: int, payload: bytes) -> bytes:
    """A frame with this first byte as a server sends it."""
    size = len(payload)
    if size <= CONTROL_BYTES_MAX:
        return _SHORT(first, size) + payload
    return _long_head(first, size, 0) + payload


def masked(first: int, payload: bytes) -> bytes:
    """The same as a client sends it."""
    size, key = len(payload), next_key()
    if size <= CONTROL_BYTES_MAX:
        return _SHORT(first, size | MASKED) + key + apply_mask(payload, key)
    return b"".join((_long_head(first, size, MASKED), key, apply_mask(payload, key)))


def _long_head(first: int, size: int, mark: int) -> bytes:
    if size < 1 << 16:
        return _MIDDLE(first, mark | 126, size)
    return _LONG(first, mark | 127, size)


def _fresh_keys() -> Iterator[bytes]:
    """Keys from the system's randomness, asked once for a thousand."""
    while True:
        block = os.urandom(_KEY_BYTES * 1024)
        for at in range(0, len(block), _KEY_BYTES):
            yield block[at : at + _KEY_BYTES]


next_key: Final = _fresh_keys().__next__
