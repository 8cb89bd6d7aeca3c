"""A WebSocket to an upstream: what the relay asks of it, and how it fails.

Whether a socket may be opened at all was decided before. Messages are passed whole; no
library of frames is known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from gateway.errors import DECLINES, Code, Headers
from gateway.relay.upstream import UpstreamInvalid

GOING_AWAY: Final = 1001
NO_CODE: Final = 1005
LOST: Final = 1006
TOO_BIG: Final = 1009


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of a socket: RFC 6455 code (1005 = none given, 1006 = lost) and reason."""

    code: int
    reason: str = ""


Message = str | bytes


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


class MessageTooBig(UpstreamInvalid):
    """A caller's message is larger than one may be."""


class UpstreamSocket(Protocol):
    """One open WebSocket to an upstream. Bytes are those of payloads, text as UTF-8."""

    sent_bytes: int
    received_bytes: int

    @property
    def subprotocol(self) -> str | None:
        """What the upstream chose among those that were offered."""
        ...

    async def receive(self) -> Message | Closed:
        """The next message, or how it ended; after that always the same end."""
        ...

    async def send(self, message: Message) -> None:
        """Send a message, waiting while the upstream does not read.

        Raises: MessageTooBig, and nothing was sent; UpstreamUnavailable when it is closed;
        UpstreamTimeout after ``write_s``.
        """
        ...

    async def close(self, end: Closed) -> None:
        """End it: a closing handshake of ``close_s`` at most, then the connection is cut."""
        ...
