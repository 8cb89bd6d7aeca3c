"""What is remembered of callers' header blocks, for a minute at most.

Laws
    * A block is known by a keyed hash of its bytes and by the address it came from. No credential
      is kept: of the headers stay those that may go on to an upstream.
    * What is known ends when the token's own memory would, and goes even if nobody asks again.
    * Bounded in blocks and bytes, and each caller has a share of both: whoever varies its headers
      or targets displaces its own, until it has as many identities as the memory has shares.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.errors import Headers
from gateway.ingress.door import site_of
from policies.bindings import TrustedPeer
from policies.snapshot import Snapshot
from policies.subject import Principal

KNOWN_MAX: Final = 10_000
KNOWN_OF_ONE_MAX: Final = 256
COURSES_MAX: Final = 64
BYTES_MAX: Final = 64 * 1024 * 1024
BYTES_OF_ONE_MAX: Final = 4 * 1024 * 1024
KNOWN_S: Final = 50.0
_LOOK_S: Final = 10.0
"""So that what is over has gone within a minute."""

Name = tuple[bytes, str]


class Course(Protocol):
    """What was decided about one target with a known header block."""

    @property
    def size(self) -> int:
        """Roughly how many bytes it takes."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Known:
    """One header block, from one address, as the ordinary way found it.

    ``until`` is a moment of the wall clock. ``header_bytes`` and ``header_count`` are what the
    listener counted. ``named`` says whether the peer's request id is taken over.
    """

    name: Name
    snapshot: Snapshot
    generation: int
    until: float
    principal: Principal | None
    headers: Headers
    scheme: str
    peer: TrustedPeer | None
    named: bool
    header_bytes: int
    header_count: int
    size: int
    courses: dict[bytes, Course] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """Whose share it counts for: a subject, or the site of a visitor without a token."""
        return self.principal.subject_id if self.principal is not None else site_of(self.name[1])


@dataclass(slots=True)
class _Share:
    """What one owner has there, the block that it sent first in front."""

    names: dict[Name, None] = field(default_factory=dict)
    held_bytes: int = 0


class Memory:
    """Header blocks by name, the one that was not asked for longest in front."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self.held_bytes = 0
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._known: collections.OrderedDict[Name, Known] = collections.OrderedDict()
        self._shares: dict[str, _Share] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._known)

    def name(self, block: bytes, peer: str) -> Name:
        """What a block from this address is known by."""
        return hashlib.blake2b(block, digest_size=16, key=self._key).digest(), peer

    def get(self, name: Name) -> Known | None:
        """What is known, whether it still counts or not."""
        known = self._known.get(name)
        if known is not None:
            self._known.move_to_end(name)
        return known

    def put(self, known: Known) -> None:
        """Remember, and let others go where there is no room."""
        self.forget(known.name)
        self._known[known.name] = known
        share = self._shares.setdefault(known.owner, _Share())
        share.names[known.name] = None
        self._grow(share, known.size)
        self._make_room(share)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def add(self, known: Known, line: bytes, course: Course) -> None:
        """Remember where a request line leads with these headers."""
        if self._known.get(known.name) is not known:
            return
        courses, share, more = known.courses, self._shares[known.owner], course.size
        if len(courses) >= COURSES_MAX:
            more -= courses.pop(next(iter(courses))).size
        courses[line] = course
        known.size += more
        self._grow(share, more)
        self._make_room(share)

    def forget(self, name: Name) -> None:
        """Let one go, if it is there."""
        known = self._known.pop(name, None)
        if known is None:
            return
        share = self._shares[known.owner]
        self._grow(share, -known.size)
        del share.names[name]
        if not share.names:
            del self._shares[known.owner]

    def _grow(self, share: _Share, more: int) -> None:
        share.held_bytes += more
        self.held_bytes += more

    def _make_room(self, share: _Share) -> None:
        while len(share.names) > KNOWN_OF_ONE_MAX or share.held_bytes > BYTES_OF_ONE_MAX:
            self.forget(next(iter(share.names)))
        while len(self._known) > KNOWN_MAX or self.held_bytes > BYTES_MAX:
            self.forget(next(iter(self._known)))

    def _look(self) -> None:
        now = self._clock()
        for name in [name for name, known in self._known.items() if known.until <= now]:
            self.forget(name)
        again = bool(self._known)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_LOOK_S, self._look) if again else None
