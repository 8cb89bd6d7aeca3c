"""Why an owner's edit was not made. Nothing of it was written."""

from __future__ import annotations

from enum import StrEnum


class Why(StrEnum):
    """The stable word that a caller may branch on."""

    BAD_EDIT = "bad_edit"
    CONFLICT = "revision_conflict"
    POLICY_CHANGED = "policy_changed"
    UNKNOWN_THREAD = "unknown_thread"
    STORE_UNAVAILABLE = "store_unavailable"


class OwnersRefused(Exception):
    """``why`` is stable, ``reason`` is for the owner, ``remedy`` says what helps."""

    def __init__(self, why: Why, reason: str, remedy: str) -> None:
        self.why = why
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{why}: {reason}; {remedy}")


def bad_edit(
    reason: str, remedy: str = "mend that change and send the edit again"
) -> OwnersRefused:
    """The edit says something that cannot be stored."""
    return OwnersRefused(Why.BAD_EDIT, reason, remedy)
