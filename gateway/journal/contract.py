"""Breaches of the consumer contract: what a checked answer did that it must not do.

Laws
    * A breach is the consumer's own act. What was withdrawn or changed after its delivery is
      nobody's, and is not written down.
    * Kinds and counts only: no id, no address, no claim. The subject is a hash.

Source: seed section 4.13, rules 3 and 5; section 5 (``consumer_contract_log``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from psycopg.types.json import Jsonb

from policies.subject import Subject
from retrieval.contract import CheckResponse

INSERT: Final = """
insert into gate.consumer_contract_log (id, kind, request_id, detail)
select k.id, k.kind, %(request_id)s, %(detail)s::jsonb || jsonb_build_object('count', k.count)
from unnest(%(ids)s::uuid[], %(kinds)s::text[], %(counts)s::integer[]) k (id, kind, count)
on conflict do nothing
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaches:
    """What one checked answer did wrong: how often, by kind."""

    request_id: str
    audience: str
    profile: str
    subject_hash: str
    policy_digest: str
    counts: Mapping[str, int]

    @classmethod
    def of(cls, found: CheckResponse, subject: Subject, *, request_id: str) -> Breaches:
        """The breaches that a verdict names; there may be none (``counts`` is empty)."""
        counts: Counter[str] = Counter()
        for claim in found.claims:
            counts["uncited_claim"] += claim.code == "uncited"
            counts["not_delivered"] += claim.citations.count("not_delivered")
            counts["wrong_revision"] += claim.citations.count("wrong_revision")
        counts["suspect_not_surfaced"] = len(found.unsurfaced_suspects)
        counts["gap_not_surfaced"] = len(found.unsurfaced_gaps)
        return cls(
            request_id=request_id,
            audience=subject.audience,
            profile=subject.grant.profile,
            subject_hash=hashlib.sha256(subject.subject_id.encode()).hexdigest(),
            policy_digest=subject.grant.digest,
            counts={kind: count for kind, count in sorted(counts.items()) if count},
        )

    def values(self) -> dict[str, Any]:
        """The parameters of ``INSERT``; written twice, they are written once."""
        detail = {
            "audience": self.audience,
            "profile": self.profile,
            "subject_hash": self.subject_hash,
            "policy_digest": self.policy_digest,
        }
        return {
            "request_id": self.request_id,
            "detail": Jsonb(detail),
            "ids": [uuid4() for _ in self.counts],
            "kinds": list(self.counts),
            "counts": list(self.counts.values()),
        }
