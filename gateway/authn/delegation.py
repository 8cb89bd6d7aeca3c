"""An upstream that retrieves for its caller, and never as itself.

The hop to an upstream that may retrieve carries a token of ours: *this caller, through this
upstream, for a minute*. It comes back together with the upstream's own credential, and the
pair is worth the intersection of both. Either half alone is worth nothing.

Law: the token names the caller by the aliases that its own token had, so that it is placed
anew under the policy of the moment it is used; the digest inside is for the record only.
"""

from __future__ import annotations

import collections
import secrets
from collections.abc import Sequence
from typing import Any, Final

from gateway.authn.bearer import unauthenticated
from gateway.authn.claims import check_audience, check_times
from gateway.authn.jws import BadToken, claims_of, read, verify
from gateway.authn.own_keys import ALGORITHM, OwnKeys
from gateway.errors import Headers
from gateway.ingress.strict_json import Json
from gateway.reasons import Why
from policies.decision import PolicyDigest
from policies.subject import Principal

HEADER: Final = b"x-gateway-delegation"
LIFE_S: Final = 60
REUSED_S: Final = 20.0
"""How long a delegation is handed out again: whoever gets it has it for 40 s at least, unless its
caller's own token ends before."""
REMEMBERED_MAX: Final = 10_000
TYP: Final = "gateway-delegation+jwt"


def delegation_of(headers: Headers) -> bytes | None:
    """The one delegation of a request, or None.

    Raises: Refusal ``unauthenticated`` for two of them.
    """
    found = [value.strip(b" \t") for name, value in headers if name == HEADER]
    if len(found) > 1:
        raise unauthenticated(Why.BAD_DELEGATION, "two delegations")
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


_Kept = tuple[Principal, PolicyDigest, Sequence[object], float, bytes]


class Delegations:
    """The delegation of each caller through each upstream, signed once in ``REUSED_S``.

    It says nothing of a single request, so one signature serves many. It is made anew for
    another principal (a token that was verified anew is one), another policy or another ring.
    """

    def __init__(self, keys: OwnKeys, *, gateway_id: str) -> None:
        self._keys = keys
        self._gateway_id = gateway_id
        self._kept: collections.OrderedDict[tuple[str, int], _Kept] = collections.OrderedDict()

    def token(self, caller: Principal, *, upstream: str, digest: PolicyDigest, now: float) -> bytes:
        """A token as `issue` makes it. Cost: 1 us when it is there, else one signature."""
        # the entry holds its caller, so its id is nobody else's as long as it stands here
        name = upstream, id(caller)
        kept = self._kept.get(name)
        if kept is not None:
            whose, under, ring, until, token = kept
            if (
                whose is caller
                and under == digest
                and ring is self._keys.keys
                and until - REUSED_S <= now < until
            ):
                return token
        token = issue(
            self._keys,
            gateway_id=self._gateway_id,
            caller=caller,
            upstream=upstream,
            digest=digest,
            now=now,
        )
        self._kept[name] = caller, digest, self._keys.keys, now + REUSED_S, token
        self._kept.move_to_end(name)
        if len(self._kept) > REMEMBERED_MAX:
            self._kept.popitem(last=False)
        return token


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
        over = error.why in {Why.EXPIRED, Why.TOO_OLD}
        why = Why.DELEGATION_EXPIRED if over else Why.BAD_DELEGATION
        raise unauthenticated(why, f"delegation: {error}") from error


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
