"""The agreement between server and data path on how an answer is given up."""

from __future__ import annotations

from typing import Final

ABORT: Final = "gateway.abort"
"""ASGI scope extension ``{"call": reset}``: resets the caller's connection at once.

An answer that cannot be completed must not look complete, and closing does not show on every
framing; a reset does.
"""
