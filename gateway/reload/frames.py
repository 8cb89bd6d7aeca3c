"""Frames of bytes over a pipe between two processes of ours, and objects inside them.

This module imports nothing of policies: the process that builds starts with it alone.
"""

from __future__ import annotations

import os
import pickle
import struct
from enum import IntEnum
from typing import Any, Final

_HEAD: Final = struct.Struct(">BI")
HEAD_BYTES: Final = _HEAD.size
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024


class Frame(IntEnum):
    """What a frame holds: a job; a part of a snapshot; its end (``Built``); a refusal (code and
    reason); that a job is given up."""

    JOB = 1
    PART = 2
    DONE = 3
    REFUSED = 4
    GIVE_UP = 5


def framed(frame: Frame, content: bytes) -> bytes:
    """A frame as it travels."""
    return _HEAD.pack(frame, len(content)) + content


def head_of(head: bytes) -> tuple[Frame, int]:
    """Kind and length of the frame that follows. Raises ValueError for what is none."""
    kind, size = _HEAD.unpack(head)
    if size > FRAME_BYTES_MAX:
        raise ValueError("a frame beyond all bounds")
    return Frame(kind), size


def read_frame(source: int) -> tuple[Frame, bytes] | None:
    """The next whole frame of a descriptor, or None at its end. For the builder: it blocks."""
    head = _exactly(source, HEAD_BYTES)
    if head is None:
        return None
    kind, size = head_of(head)
    content = _exactly(source, size)
    return None if content is None else (kind, content)


def _exactly(source: int, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        piece = os.read(source, size - len(found))
        if not piece:
            return None
        found += piece
    return bytes(found)


def sealed(content: Any) -> bytes:
    """An object of ours for the pipe."""
    return pickle.dumps(content, protocol=5)


def opened(content: bytes) -> Any:
    """An object that came through our own pipe; nothing else may be given to this."""
    return pickle.loads(content)  # noqa: S301 - a pipe between two processes of ours
