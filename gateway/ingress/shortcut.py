"""What a connection keeps for requests that are answered beside the application.

A *lane* may take a request whose like was judged a moment ago; whatever it leaves goes through the
parser and the application as ever. It is asked only while the connection is quiet: nothing is
being parsed, nothing is under way, nothing waits to be written. While it has a request, what the
caller sends next waits here unread.

This room knows bytes and connections; what is remembered, and why, is the lane's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.ingress.opening import DefaultLines

if TYPE_CHECKING:
    from gateway.ingress.protocol import GuardedProtocol

BEGUN: Final = "gateway.begun"
"""ASGI scope extension: the same request as far as a lane came with it."""
LESSON: Final = "gateway.lesson"
"""ASGI scope extension: who wants to hear how this request was judged."""


_DEFAULT: Final = DefaultLines()


class Passing(Protocol):
    """A request that a lane has under way."""

    def gone(self) -> None:
        """Its caller left."""

    def look(self) -> None:
        """Whoever can wait for it should take over."""


class Begun(Protocol):
    """What a lane hands to the application together with a request."""

    def let_go(self) -> None:
        """Nobody takes it up."""


class Lesson(Protocol):
    """Bytes whose judgement a lane wants to remember."""

    def void(self) -> None:
        """They are not the bytes of one whole request."""


class Lane(Protocol):
    """Who may answer a request beside the application."""

    def take(self, way: Way, data: bytes) -> bool:
        """Take the request that ``data`` is, if it is one, whole, and known; else leave all as
        it was, maybe with a ``lesson``. Never waits, never raises."""
        ...


class Way:
    """One connection, as its lane sees it."""

    __slots__ = (
        "_begun",
        "_early",
        "_protocol",
        "lane",
        "lesson",
        "named",
        "passing",
        "peer",
    )

    def __init__(self, protocol: GuardedProtocol, lane: Lane) -> None:
        client = protocol.client
        self.lane = lane
        self.peer: str = client[0] if client else ""
        self.passing: Passing | None = None
        self.lesson: Lesson | None = None
        self.named: tuple[bytes, tuple[bytes, str]] | None = None
        """The block that was named last, and its name: most callers send one again and again."""
        self._protocol = protocol
        self._early = b""

    # --- for the connection ---------------------------------------------------------------

    def takes(self, data: bytes) -> bool:
        """Whether these bytes are taken care of."""
        protocol = self._protocol
        if self.passing is not None:
            self._early += data
            protocol.flow.pause_reading()
            return True
        if not protocol.quiet:
            return False
        if self.lane.take(self, data):
            return True
        lesson, self.lesson = self.lesson, None
        if lesson is None:
            return False
        if not protocol.parsed(data, {LESSON: lesson}):
            lesson.void()
        return True

    def ends(self) -> None:
        """The process ends: what is under way goes on as the application's, whose end it waits
        for and cuts in time."""
        if self.passing is not None:
            self.passing.look()

    def lost(self) -> None:
        """The caller left."""
        passing, self.passing = self.passing, None
        if passing is not None:
            passing.gone()

    # --- for the lane -----------------------------------------------------------------------

    @property
    def scheme(self) -> str:
        return self._protocol.scheme or "http"

    @property
    def crowded(self) -> bool:
        """Whether there are more connections than may be."""
        protocol = self._protocol
        return len(protocol.connections) > protocol.limits.connections

    @property
    def default_lines(self) -> bytes:
        """What the server adds in front of every answer."""
        return _DEFAULT.of(self._protocol.server_state.default_headers)

    def begin(self, passing: Passing) -> None:
        """A request is under way."""
        self.passing = passing
        self._protocol.busy()

    def answer(self, head: bytes, body: bytes) -> None:
        """Write the answer to what is under way, whole."""
        self.passing = None
        self._protocol.answered(head, body)
        if self._early:
            early, self._early = self._early, b""
            self._protocol.flow.resume_reading()
            self._protocol.data_received(early)

    def hand_over(self, data: bytes, begun: Begun) -> bool:
        """Let the application answer what is under way; whether it does."""
        protocol = self._protocol
        self.passing = None
        taken = protocol.parsed(data, {BEGUN: begun})
        if self._early:
            early, self._early = self._early, b""
            protocol.flow.resume_reading()
            protocol.data_received(early)
        return taken


def extension(scope: Any, name: str) -> Any:
    """What a lane put into a scope under this name; None without a lane."""
    return (scope.get("extensions") or {}).get(name)
