"""What is known, as long as it counts, and how it comes to be known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gateway.app import DataPlane
from gateway.authn import delegation
from gateway.authn.bearer import bearer_of
from gateway.errors import Headers
from gateway.fastpath.head import Head
from gateway.fastpath.memory import KNOWN_S, Known, Memory, Name
from gateway.ingress.provenance import trusted_peer
from gateway.ingress.shortcut import Way
from gateway.stations import Granted

_NAMED_BYTES_MAX: Final = 4_096
"""Of a longer block each connection would hold one as long as it is kept."""
_OWN: Final = frozenset({b"authorization", b"traceparent", b"x-request-id"})
"""Read before and never sent on: nothing of them need be kept."""
_FORBIDDEN: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"http2-settings"}
    | {b"trailer", b"te", delegation.HEADER}
)
_KEEPING: Final = frozenset({b"connection", b"proxy-connection"})
"""The parser reads both alike."""
_NO_BODY: Final = (b"content-length", b"0")


class Keeper:
    """The memory of one data plane and when it may be believed. For one loop."""

    def __init__(self, plane: DataPlane, *, clock: Callable[[], float] = time.time) -> None:
        self.plane = plane
        self.memory = Memory(clock=clock)
        self.clock = clock

    def name(self, way: Way, block: bytes) -> Name:
        """What a block is known by that came this way."""
        named = way.named
        if named is not None and named[0] == block:
            return named[1]
        name = self.memory.name(block, way.peer)
        if len(block) <= _NAMED_BYTES_MAX:
            way.named = block, name
        return name

    def known(self, name: Name, now: float) -> Known | None:
        """What is known under a name, if it counts now: the same policy is in force, the same
        keys verify, nothing is over, and the listener would still take so many headers."""
        known = self.memory.get(name)
        if known is None:
            return None
        plane = self.plane
        limits, snapshots = plane.limits, plane.snapshots
        counts = (
            snapshots.ready
            and known.snapshot is snapshots.current
            and known.until > now
            and known.generation == plane.authenticator.generation
            and known.header_bytes <= limits.header_bytes
            and known.header_count <= limits.header_count
        )
        return known if counts else None

    def learn(self, lesson: Lesson, granted: Granted, headers: Headers, address: str) -> None:
        """Remember a header block from this address, which was let pass just now."""
        identified = granted.placed.identified
        matched = identified.matched
        snapshot, now = matched.snapshot, self.clock()
        if not lesson.fits(headers):
            return
        until = now + KNOWN_S
        token = bearer_of(headers)
        if token is not None:
            authenticator = self.plane.authenticator
            until = min(until, authenticator.believed_until(token, digest=snapshot.digest))
        if until <= now:
            return
        peer = trusted_peer(address, snapshot.trusted_peers)
        kept = tuple([header for header in headers if header[0] not in _OWN])
        self.memory.put(
            Known(
                name=lesson.name,
                snapshot=snapshot,
                generation=self.plane.authenticator.generation,
                until=until,
                principal=identified.principal,
                headers=kept,
                scheme=lesson.scheme,
                peer=peer,
                named=peer is not None and "x-request-id" in peer.headers,
                header_bytes=sum([len(name) + len(value) + 4 for name, value in headers]),
                header_count=len(headers),
                size=1_024 + sum([len(name) + len(value) + 150 for name, value in kept]),
            )
        )


class Lesson:
    """Bytes that may be remembered once it is known how they were judged."""

    __slots__ = ("_keeper", "bodiless", "name", "request_ids", "scheme", "traceparents")

    def __init__(
        self, keeper: Keeper, name: Name, head: Head, scheme: str, *, bodiless: bool = False
    ) -> None:
        """``bodiless``: it may say of a body that there is none, which is sent on to nobody."""
        self.bodiless = bodiless
        self.name = name
        self.scheme = scheme
        self.traceparents = 0 if head.traceparent is None else 1
        self.request_ids = 0 if head.request_id is None else 1
        self._keeper: Keeper | None = keeper

    def void(self) -> None:
        """See `shortcut.Lesson`."""
        self._keeper = None

    def learn(self, granted: Granted, headers: Headers, address: str) -> None:
        """The request with these headers was allowed like this; it came from ``address``."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.learn(self, granted, headers, address)

    def fits(self, headers: Headers) -> bool:
        """Whether the next request with this block can be answered without its headers being
        read: it has no body, keeps its connection, and what was cut out stands there once."""
        traceparents = request_ids = 0
        for name, value in headers:
            if self.bodiless and (name, value) == _NO_BODY:
                continue
            if name in _FORBIDDEN or (name in _KEEPING and value.lower() != b"keep-alive"):
                return False
            traceparents += name == b"traceparent"
            request_ids += name == b"x-request-id"
        return (traceparents, request_ids) == (self.traceparents, self.request_ids)
