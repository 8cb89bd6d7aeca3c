"""A WebSocket to an upstream: what is asked of it, and how it is declined.

Whether a socket may be opened at all was decided before.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.errors import DECLINES, Code, Headers
from gateway.relay.upstream import UpstreamInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A handshake. ``target`` is raw bytes; ``headers`` hold Host and nothing of the framing."""

    target: bytes
    headers: Headers
    subprotocols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    """Bounds of one socket. A ping is due every ``ping_s``, its answer before the next one."""

    message_bytes: int = 1024 * 1024
    ping_s: float = 20.0
    close_s: float = 5.0


class SocketDeclined(UpstreamInvalid):
    """The upstream answered the handshake with something else than a socket."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status} to a handshake")
        self.status = status
        self.code = DECLINES.get(status, Code.UPSTREAM_INVALID)
