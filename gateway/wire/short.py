"""Reads that bring one whole message and nothing else, as most do: passed on without a search.

What `frames.Reader` would make of them, in a fifth of its steps: between a read and a write of
some 7 us each in the kernel, a call of a Python function is what counts. Whatever is anything
else is the reader's, and so are frames whose length takes eight bytes: a read seldom brings one
whole, and then its bytes are what costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from websockets.frames import apply_mask  # type: ignore[attr-defined]  # in C where it was built

from gateway.wire.frames import (
    CONTROL_BYTES_MAX,
    MASKED,
    WHOLE_TEXT,
    WHOLES,
    Reader,
    next_key,
)

_HEAD: Final = 2
_MASKED_HEAD: Final = 6
_WIDE_HEAD: Final = 4
"""Of a length that takes two bytes of its own."""
_WIDE_MASKED_HEAD: Final = 8
_WIDE: Final = 126
_WIDE_MOST: Final = (1 << 16) - 1


class Outlet(Protocol):
    """The other side: what is passed on to it, and how much that was (see `leg.Leg`)."""

    is_open: bool
    messages: int
    sent_bytes: int
    write: Callable[[bytes], None]


def short_way(
    reader: Reader, out: Outlet, otherwise: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    """What takes the reads of a side instead of ``otherwise``, which gets what is something else.

    ``out`` gets what ``reader`` would have given.
    """
    most = min(CONTROL_BYTES_MAX, reader.message_bytes)
    if reader.is_masked:
        return _from_client(reader, out, most, _wide_from_client(reader, out, otherwise))
    return _from_server(reader, out, most, _wide_from_server(reader, out, otherwise))


# Names of a function's own are read fastest, and a step that a length needs not take is not there:
# each costs some 20 ns, so every side has two functions.


def _from_client(
    reader: Reader, out: Outlet, most: int, otherwise: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    wholes, write, mask, key_of = WHOLES, out.write, apply_mask, next_key

    def take(data: bytes) -> None:
        size = len(data) - _MASKED_HEAD
        if 0 <= size <= most and reader.is_calm and data[1] == size | MASKED and data[0] in wholes:
            payload = mask(data[_MASKED_HEAD:], data[_HEAD:_MASKED_HEAD])
            if data[0] != WHOLE_TEXT or payload.isascii() or _is_text(payload):
                if out.is_open:
                    out.messages += 1
                    out.sent_bytes += size
                    key = key_of()
                    write(data[:_HEAD] + key + mask(payload, key))
                return
        otherwise(data)

    return take


def _wide_from_client(
    reader: Reader, out: Outlet, otherwise: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    wholes, write, mask, key_of = WHOLES, out.write, apply_mask, next_key
    most, mark = min(_WIDE_MOST, reader.message_bytes), _WIDE | MASKED

    def take(data: bytes) -> None:
        size = len(data) - _WIDE_MASKED_HEAD
        if (
            CONTROL_BYTES_MAX < size <= most
            and reader.is_calm
            and data[1] == mark
            and data[2] << 8 | data[3] == size
            and data[0] in wholes
        ):
            payload = mask(data[_WIDE_MASKED_HEAD:], data[_WIDE_HEAD:_WIDE_MASKED_HEAD])
            if data[0] != WHOLE_TEXT or payload.isascii() or _is_text(payload):
                if out.is_open:
                    out.messages += 1
                    out.sent_bytes += size
                    key = key_of()
                    write(data[:_WIDE_HEAD] + key + mask(payload, key))
                return
        otherwise(data)

    return take


def _from_server(
    reader: Reader, out: Outlet, most: int, otherwise: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    wholes, write = WHOLES, out.write

    def take(data: bytes) -> None:
        size = len(data) - _HEAD
        if 0 <= size <= most and reader.is_calm and data[1] == size and data[0] in wholes:
            payload = data[_HEAD:]
            if data[0] != WHOLE_TEXT or payload.isascii() or _is_text(payload):
                if out.is_open:
                    out.messages += 1
                    out.sent_bytes += size
                    write(data)
                return
        otherwise(data)

    return take


def _wide_from_server(
    reader: Reader, out: Outlet, otherwise: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    wholes, write, most = WHOLES, out.write, min(_WIDE_MOST, reader.message_bytes)

    def take(data: bytes) -> None:
        size = len(data) - _WIDE_HEAD
        if (
            CONTROL_BYTES_MAX < size <= most
            and reader.is_calm
            and data[1] == _WIDE
            and data[2] << 8 | data[3] == size
            and data[0] in wholes
        ):
            payload = data[_WIDE_HEAD:]
            if data[0] != WHOLE_TEXT or payload.isascii() or _is_text(payload):
                if out.is_open:
                    out.messages += 1
                    out.sent_bytes += size
                    write(data)
                return
        otherwise(data)

    return take


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
