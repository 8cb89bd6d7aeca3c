"""How much and for how long: every bound of the ingress in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one listener. Seconds end in ``_s``, sizes in ``_bytes``.

    ``header_s`` covers idle-after-connect as well as a dribbled header block. ``body_s`` is
    the total for a body that is read in full (guarded routes); ``body_idle_s`` the longest
    silence inside any body; ``body_rate`` the bytes a second that one which is passed on must
    reach, with ``body_s`` to spare. Only time in which the caller is waited for counts.

    ``message_bytes`` bounds one message of a WebSocket, ``ping_s`` is between two pings.
    ``stream_s`` ends a socket or a stream of events whatever happens on it, ``stream_idle_s``
    a socket that carries no message; after ``events_comment_s`` without an event its caller is
    sent a comment.
    """

    header_bytes: int = 32 * 1024
    header_count: int = 100
    target_bytes: int = 8 * 1024
    header_s: float = 10.0
    keep_alive_s: float = 15.0
    body_bytes: int = 64 * 1024
    body_s: float = 15.0
    body_idle_s: float = 15.0
    body_rate: int = 512
    request_s: float = 30.0
    connections: int = 10_000
    connections_per_peer: int = 1_000
    message_bytes: int = 1024 * 1024
    ping_s: float = 20.0
    stream_s: float = 3_600.0
    stream_idle_s: float = 600.0
    events_comment_s: float = 15.0

    def __post_init__(self) -> None:
        if any(getattr(self, name) <= 0 for name in self.__slots__):
            raise ValueError("every limit of a listener is a positive number")

    def take_over(self, other: Limits) -> None:
        """Become ``other``, for everybody who holds this: the one way in which a bound changes.

        To be called on the loop, between two requests.
        """
        for name in self.__slots__:
            object.__setattr__(self, name, getattr(other, name))
