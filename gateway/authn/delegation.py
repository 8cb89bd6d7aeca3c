"""An upstream that retrieves for its caller, and never as itself.

The hop to an upstream that may retrieve carries a token of ours: *this caller, through this
upstream, for a minute*. It comes back together with the upstream's own credential, and the
pair is worth the intersection of both. Either half alone is worth nothing.

Law: the token names the caller by the aliases that its own token had, so that it is placed
anew under the policy of the moment it is used; the digest inside is for the record only.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from gateway.authn.bearer import unauthenticated
from gateway.authn.claims import check_audience, check_times
from gateway.authn.jws import BadToken, claims_of, read, verify
from gateway.authn.own_keys import ALGORITHM, OwnKeys
from gateway.errors import Headers
from gateway.ingress.strict_json import Json
from policies.decision import PolicyDigest
from policies.subject import Principal

HEADER: Final = b"x-gateway-delegation"
LIFE_S: Final = 60
TYP: Final = "gateway-delegation+jwt"


def delegation_of(headers: Headers) -> bytes | None:
    """The one delegation of a request, or None.

    Raises: Refusal ``unauthenticated`` for two of them.
    """
    found = [value.strip(b" \t") for name, value in headers if name == HEADER]
    if len(found) > 1:
        raise unauthenticated("two delegations")
    return found[0] if found else None


def issue(
    keys: OwnKeys,
    *,
    gateway_id: str,
    caller: Principal,
    upstream: str,
    digest: PolicyDigest,
    now: float,
) -> bytes:
    """The token that lets ``upstream`` retrieve for ``caller`` until it ends."""
    issued = int(now)
    claims: dict[str, Any] = {
        "iss": gateway_id,
        "aud": gateway_id,
        "sub": caller.subject_id,
        "act": {"sub": upstream},
        "iat": issued,
        "exp": int(min(issued + LIFE_S, caller.expires_at)),
        "jti": secrets.token_hex(12),
        "digest": digest,
        "issuer": caller.issuer,
        "claims": {name: sorted(values) for name, values in caller.claims.items()},
        "tenants": caller.tenants,
        "jurisdictions": caller.jurisdictions,
    }
    return keys.sign(claims, typ=TYP)


def accept(token: bytes, keys: OwnKeys, *, gateway_id: str, now: float) -> tuple[Principal, str]:
    """The caller of a delegation, and the upstream that may use it.

    Raises: Refusal ``unauthenticated``.
    """
    try:
        unverified = read(token, {ALGORITHM})
        key = keys.public(unverified.kid)
        if key is None or unverified.typ != TYP:
            raise BadToken("not a delegation of ours")
        verify(unverified, key)
        claims = claims_of(unverified)
        if claims.get("iss") != gateway_id:
            raise BadToken("issuer")
        check_audience(claims, gateway_id)
        expires_at = check_times(claims, now=now, age_max_s=LIFE_S)
        return _principal(claims, expires_at), _text(_object(claims, "act"), "sub")
    except BadToken as error:
        raise unauthenticated(f"delegation: {error}") from error


def _principal(claims: dict[str, Json], expires_at: float) -> Principal:
    return Principal(
        issuer=_text(claims, "issuer"),
        subject_id=_text(claims, "sub"),
        claims={
            name: frozenset(_texts(_object(claims, "claims"), name))
            for name in _object(claims, "claims")
        },
        tenants=_texts(claims, "tenants"),
        jurisdictions=_texts(claims, "jurisdictions"),
        expires_at=expires_at,
    )


def _text(claims: dict[str, Json], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise BadToken(name)
    return value


def _object(claims: dict[str, Json], name: str) -> dict[str, Json]:
    value = claims.get(name)
    if not isinstance(value, dict):
        raise BadToken(name)
    return value


def _texts(claims: dict[str, Json], name: str) -> tuple[str, ...]:
    value = claims.get(name)
    if not isinstance(value, list):
        raise BadToken(name)
    texts = tuple(one for one in value if isinstance(one, str) and one)
    if len(texts) != len(value):
        raise BadToken(name)
    return texts
