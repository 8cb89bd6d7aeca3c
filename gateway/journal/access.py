"""What one use of the operators' surface leaves behind in the journal.

Law: who (a hash), what, why, under which policy, how much was told. No title, no text, no
address; the operator's own reason is the one free text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from policies.kinds import AdminAction

INSERT: Final = """
insert into gate.admin_access (id, request_id, trace_id, subject_hash, issuer, roles, action,
    effect, rules, reason, policy_digest, about_digest, told)
values (%(id)s, %(request_id)s, %(trace_id)s, %(subject_hash)s, %(issuer)s, %(roles)s, %(action)s,
    %(effect)s, %(rules)s, %(reason)s, %(policy_digest)s, %(about_digest)s, %(told)s::jsonb)
on conflict do nothing
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """One row of ``gate.admin_access``, less the time, which the database's clock gives.

    ``told`` holds numbers, words of policies and ids: what was asked about, how much was told.
    """

    access_id: UUID
    request_id: str
    trace_id: str
    subject_hash: str
    issuer: str
    roles: Sequence[str]
    action: AdminAction
    allowed: bool
    rules: Sequence[str]
    reason: str
    policy_digest: str
    about_digest: str | None
    told: Mapping[str, str | int]

    @classmethod
    def of(cls, subject_id: str, **fields: Any) -> AdminAccess:
        """A fresh row; ``subject_id`` is hashed here, so that no row names a person."""
        hashed = hashlib.sha256(subject_id.encode()).hexdigest()
        return cls(access_id=uuid4(), subject_hash=hashed, **fields)

    def values(self) -> dict[str, Any]:
        """The parameters of ``INSERT``."""
        return {
            "id": self.access_id,
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "subject_hash": self.subject_hash,
            "issuer": self.issuer,
            "roles": sorted(self.roles),
            "action": self.action.value,
            "effect": "allow" if self.allowed else "deny",
            "rules": list(self.rules),
            "reason": self.reason,
            "policy_digest": self.policy_digest,
            "about_digest": self.about_digest,
            "told": json.dumps(self.told, sort_keys=True),
        }


class AccessJournal(Protocol):
    """Where uses are made durable."""

    async def record_access(self, access: AdminAccess) -> None:
        """Return once the row is on disk. Recording it twice is the same as once.

        Raises: JournalUnavailable; then nothing of the answer may leave.
        """
        ...
