"""The one reference to the policy in force. Whoever needs policy reads it once per request.

Laws
    * A snapshot in force is replaced whole, by one assignment; a request that pinned the one
      before goes on under it, and is placed anew when the database enforces another.
    * What is *prepared* was accepted, compiled and proven already: it may come into force at any
      moment, by its digest. What is a *candidate* never does; it is only looked at.
    * Nothing here waits, compiles or fails.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Final

from gateway.errors import Code, Refusal
from policies.snapshot import Snapshot

PREPARED_MAX: Final = 2
"""One that is staged, and one of which nobody knows yet whether it came into force."""


class SnapshotHolder:
    """Holds the active snapshot if there is one, what may follow it, and a candidate beside it.

    To be changed on the event loop's thread only; ``current`` may be read from any.
    """

    __slots__ = ("_current", "_followers", "_prepared", "candidate", "on_advance")

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._current = snapshot
        self._prepared: collections.OrderedDict[str, Snapshot] = collections.OrderedDict()
        self.candidate: Snapshot | None = None
        """A policy that is tried beside the one in force; it decides nothing."""
        self.on_advance: Callable[[Snapshot | None, Snapshot], None] | None = None
        """Told of every change with the snapshot before and the one now in force."""
        self._followers: list[Callable[[], None]] = []

    def follow(self, told: Callable[[], None]) -> None:
        """Let somebody else hear of every change, for as long as this holder lives."""
        self._followers.append(told)

    @property
    def ready(self) -> bool:
        return self._current is not None

    @property
    def current(self) -> Snapshot:
        """The snapshot in force. Raises Refusal ``policy_unavailable`` when there is none."""
        if self._current is None:
            raise Refusal(Code.POLICY_UNAVAILABLE, "no snapshot")
        return self._current

    @property
    def prepared(self) -> frozenset[str]:
        """The digests that could come into force now."""
        return frozenset(self._prepared)

    def prepare(self, snapshot: Snapshot) -> None:
        """Keep a proven snapshot ready; the oldest one beyond two is let go."""
        self._prepared[snapshot.digest] = snapshot
        self._prepared.move_to_end(snapshot.digest)
        while len(self._prepared) > PREPARED_MAX:
            self._prepared.popitem(last=False)

    def forget(self, digest: str) -> Snapshot | None:
        """Let a prepared snapshot go, if it is there; the caller may be the last to hold it."""
        return self._prepared.pop(digest, None)

    def advance(self, digest: str) -> bool:
        """Bring the snapshot of this digest into force; whether it is now.

        False, and nothing changes, when no such snapshot is prepared. Cost: one assignment.
        """
        before = self._current
        if before is not None and before.digest == digest:
            return True
        found = self._prepared.pop(digest, None)
        if found is None:
            return False
        self._current = found
        if self.on_advance is not None:
            self.on_advance(before, found)
        for told in self._followers:
            told()
        return True
