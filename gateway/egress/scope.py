"""``GET /v1/scope``: what the policy says about the caller's own grant, and nothing else.

No count, no id and no title of anything stored: the document depends on policy and claims.
"""

from __future__ import annotations

import asyncio
import collections
from typing import Any, Final

import orjson

from policies.decision import Grant, PolicyDigest
from policies.predicate import boxes
from policies.snapshot import Snapshot
from policies.subject import Principal, Subject

_REMEMBERED_MAX: Final = 256
_Boxes = list[dict[str, Any]]


class ScopeDocuments:
    """Writes scope documents; the human form of a grant is remembered per policy and profiles."""

    def __init__(self) -> None:
        self._forms: collections.OrderedDict[tuple[PolicyDigest, tuple[str, ...]], _Boxes]
        self._forms = collections.OrderedDict()

    async def document(
        self, snapshot: Snapshot, principal: Principal | None, subject: Subject
    ) -> bytes:
        """The caller's visible scope as JSON.

        ``readable`` lists boxes of facet values: a unit whose facets lie in one of them may be
        read, with a consent where the box asks for one. Cost: on first use of a set of
        profiles tens of milliseconds, off the event loop.
        """
        claims = principal.claims if principal is not None else {}
        return orjson.dumps(
            {
                "audience": subject.audience,
                "profiles": subject.grant.profiles,
                "task_scope": subject.task_scope,
                "task_scopes": sorted(claims.get("task_scopes", ())),
                "tenants": subject.tenants,
                "jurisdictions": subject.jurisdictions,
                "purpose": subject.purpose,
                "purposes": snapshot.vocabulary.purposes,
                "acting_upstream": subject.actor,
                "policy_digest": subject.grant.digest,
                "readable": await self._readable(snapshot, subject.grant),
            }
        )

    async def _readable(self, snapshot: Snapshot, grant: Grant) -> _Boxes:
        key = (grant.digest, grant.profiles)
        if (kept := self._forms.get(key)) is None:
            kept = self._forms[key] = await asyncio.to_thread(_forms_of, snapshot, grant)
            if len(self._forms) > _REMEMBERED_MAX:
                self._forms.popitem(last=False)
        return kept


def _forms_of(snapshot: Snapshot, grant: Grant) -> _Boxes:
    plain = set(grant.plain)
    return [
        {"consent": consent, "facets": dict(box.cells)}
        for consent, classes in (
            ("none", grant.plain),
            ("granted", tuple(one for one in grant.consented if one not in plain)),
        )
        for box in boxes(snapshot.vocabulary, classes)
    ]
