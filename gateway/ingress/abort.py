"""The agreement between server and data path on how an answer is given up."""

from __future__ import annotations

import asyncio
from typing import Final

ABORT: Final = "gateway.abort"
"""ASGI scope extension ``{"call": reset}``: resets the caller's connection at once, and tells
whether the caller was still there.

An answer that cannot be completed must not look complete, and closing does not show on every
framing; a reset does.
"""


def cut(transport: asyncio.Transport) -> bool:
    """What the extension calls."""
    was_there = not transport.is_closing()
    transport.abort()
    return was_there
