"""The signed word of the gateway to an upstream: who this request is from, for a minute."""

from __future__ import annotations

from typing import Any, Final

from gateway.authn.own_keys import OwnKeys
from policies.decision import PolicyDigest

HEADER: Final = b"x-gateway-assertion"
LIFE_S: Final = 60
TYP: Final = "gateway-assertion+jwt"


def assertion(
    keys: OwnKeys,
    *,
    gateway_id: str,
    token_audience: str,
    subject_id: str,
    audience: str,
    profile: str,
    digest: PolicyDigest,
    request_id: str,
    method: str,
    path: str,
    now: float,
) -> bytes:
    """A compact ES256 JWT bound to one request of one caller at one upstream."""
    claims: dict[str, Any] = {
        "iss": gateway_id,
        "aud": token_audience,
        "sub": subject_id,
        "iat": int(now),
        "exp": int(now) + LIFE_S,
        "audience": audience,
        "profile": profile,
        "digest": digest,
        "rid": request_id,
        "htm": method,
        "htu": path,
    }
    return keys.sign(claims, typ=TYP)
