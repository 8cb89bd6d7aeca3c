"""Reads that bring one short message and nothing else, as most do: passed on without a search.

What `frames.Reader` would make of them, in a tenth of its steps: between a read and a write of
some 7 us each in the kernel, a call of a Python function is what counts. Whatever is anything
else is the reader's.
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


class Outlet(Protocol):
    """The other side: what is passed on to it, and how much that was (see `leg.Leg`)."""

    is_open: bool
    messages: int
    sent_bytes: int
    write: Callable[[bytes], None]


def short_way(
    reader: Reader, out: Outlet, otherwise: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    """What takes the reads of a side instead of ``otherwise``, which gets what is not short.

    ``out`` gets what ``reader`` would have given.
    """
    make = _from_client if reader.is_masked else _from_server
    return make(reader, out, min(CONTROL_BYTES_MAX, reader.message_bytes), otherwise)


def _from_client(
    reader: Reader, out: Outlet, most: int, otherwise: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    # names of a function's own are read fastest
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


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
