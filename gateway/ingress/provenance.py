"""Where a request came from: the socket's peer, and the id that follows the request.

A client's own ``X-Request-Id`` is never taken over: it would let a caller forge the thread
that operators follow through journal, log and trace.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

_TRACEPARENT: Final = re.compile(
    rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
)


def new_request_id() -> str:
    """A fresh opaque id, 32 hex digits."""
    return secrets.token_hex(16)


def trace_id_from(headers: tuple[tuple[bytes, bytes], ...]) -> str:
    """The trace id of the caller's ``traceparent`` (W3C), or a fresh one.

    A malformed or doubled header counts as none.
    """
    found = [value for name, value in headers if name == b"traceparent"]
    if len(found) == 1 and (match := _TRACEPARENT.fullmatch(found[0])):
        return match.group(1).decode("ascii")
    return secrets.token_hex(16)
