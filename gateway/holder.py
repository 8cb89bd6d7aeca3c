"""The one reference to the policy in force. Whoever needs policy reads it once per request."""

from __future__ import annotations

from gateway.errors import Code, Refusal
from policies.snapshot import Snapshot


class SnapshotHolder:
    """Holds the active snapshot, if there is one."""

    __slots__ = ("_current",)

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._current = snapshot

    @property
    def ready(self) -> bool:
        return self._current is not None

    @property
    def current(self) -> Snapshot:
        """The snapshot in force. Raises Refusal ``policy_unavailable`` when there is none."""
        if self._current is None:
            raise Refusal(Code.POLICY_UNAVAILABLE, "no snapshot")
        return self._current
