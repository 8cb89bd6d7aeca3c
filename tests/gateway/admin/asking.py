"""Operators of a composed gateway: who they are, and how they ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.surfaces.admin.shadow import SHADOW_PATH
from gateway.surfaces.admin.wire import EXPLAIN_PATH, LIVE_PATH
from tests.gateway.tokens import Issuers
from tests.system.composed import Composed

REASON = "review of change 17"
DIGEST = "d" * 64
ROWS = (
    "select action, effect, rules, reason, roles, issuer, subject_hash, policy_digest,"
    " about_digest, told, request_id, trace_id from gate.admin_access order by occurred_at"
)
NAMES = ("action", "effect", "rules", "reason", "roles", "issuer", "subject_hash",
         "policy_digest", "about_digest", "told", "request_id", "trace_id")  # fmt: skip


def operator(issuers: Issuers, *roles: str, **changes: Any) -> str:
    """A sound token of a colleague with these roles, in the provider's words."""
    return issuers.token("employee", roles=list(roles), **changes)


def pipeline(issuers: Issuers, **changes: Any) -> str:
    """A sound token of the pipeline, which no row places in an audience."""
    return issuers.sign(
        "idp:services", issuers.claims("idp:services", **{"roles": ["policy-ci"], **changes})
    )


def live(mode: str = "counts", *changes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A question for live numbers."""
    return {"reason": REASON, "mode": mode, "digest": DIGEST, "changes": list(changes), **more}


def explain(unit: str, profile: str = "customer", **caller: Any) -> dict[str, Any]:
    return {"reason": REASON, "unit": unit, "caller": {"profile": profile, **caller}}


@dataclass(frozen=True, slots=True)
class Operators:
    """A composed gateway as its operators see it."""

    world: Composed

    async def post(self, path: str, token: str | None, body: Any, **headers: str) -> httpx.Response:
        bearer = {"authorization": f"Bearer {token}"} if token is not None else {}
        return await self.world.client.post(
            f"{self.world.gateway.admin_url}{path}", json=body, headers=bearer | headers
        )

    async def live(self, token: str | None, body: Any) -> httpx.Response:
        return await self.post(LIVE_PATH, token, body)

    async def explain(self, token: str | None, body: Any) -> httpx.Response:
        return await self.post(EXPLAIN_PATH, token, body)

    async def shadow(self, token: str | None) -> httpx.Response:
        return await self.post(SHADOW_PATH, token, {"reason": REASON})

    async def journaled(self) -> list[dict[str, Any]]:
        """The rows of all uses, oldest first."""
        rows = await self.world.sql(ROWS)
        return [dict(zip(NAMES, row, strict=True)) for row in rows]
