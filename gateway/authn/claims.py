"""What a verified token must say before it names a caller.

Every check is exact and strict: a claim of another type than its own is a refusal, an absent
one is never a default.

Source: RFC 7519 section 4.1, RFC 9068 section 4, RFC 8725, RFC 9449 section 7.1; attack log rows
J8-J11, J16, J18.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import Final

from gateway.authn.jws import BadToken
from gateway.ingress.strict_json import Json
from gateway.reasons import Why
from policies.bindings import IssuerBinding
from policies.subject import Principal

LEEWAY_S: Final = 30.0
WORD_MAX: Final = 2_048
"""Characters of an id that a list of revocations can name."""
_TYPES: Final = frozenset({"", "jwt", "at+jwt"})
_NOT_ACCESS: Final = frozenset({"nonce", "at_hash", "c_hash", "s_hash", "events"})
"""Claims that only ID tokens and logout tokens carry."""
_BOUND: Final = "cnf"
"""A token that is bound to its sender's key (RFC 7800, 8705, 9449) is worth nothing without the
proof, and none is checked here: taken as a bearer token it would serve whoever stole it."""
_USES: Final = {"token_use": frozenset({"access"}), "typ": frozenset({"bearer", "at+jwt", "jwt"})}
"""What providers that say a token's purpose in a claim call an access token."""
_SUB: Final = re.compile(r"[^\x00-\x1f\x7f]{1,255}")


def subject_id(issuer_url: str, sub: str) -> str:
    """The opaque, stable name of a caller: consents are given to it.

    Two issuers never collide: the issuer's length is part of what is hashed.
    """
    text = f"{len(issuer_url)}:{issuer_url}{sub}".encode()
    return "s." + hashlib.sha256(text).hexdigest()[:40]


def issuer_of(claims: dict[str, Json]) -> str:
    """The ``iss`` of a token, to find the binding by; empty when there is none."""
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else ""


def principal_of(
    claims: dict[str, Json], *, typ: str, binding: IssuerBinding, now: float
) -> Principal:
    """The caller that a verified token of this issuer names, in our words only.

    Raises: BadToken.
    """
    if typ not in _TYPES or not _NOT_ACCESS.isdisjoint(claims):
        raise BadToken("not an access token", Why.NOT_AN_ACCESS_TOKEN)
    for name, words in _USES.items():
        use = claims.get(name)
        if name in claims and not (isinstance(use, str) and use.lower() in words):
            raise BadToken("not an access token by its own words", Why.NOT_AN_ACCESS_TOKEN)
    if _BOUND in claims:
        raise BadToken("bound to a key, and no proof of it is taken here", Why.BOUND_TOKEN)
    if claims.get("iss") != binding.url:
        raise BadToken("issuer", Why.UNKNOWN_ISSUER)
    check_audience(claims, binding.token_audience)
    expires_at = check_times(claims, now=now, age_max_s=float(binding.max_age_seconds))
    sub = claims.get("sub")
    if not isinstance(sub, str) or not _SUB.fullmatch(sub):
        raise BadToken("sub", Why.BAD_CLAIM)
    jti = claims.get("jti", "absent")
    if not isinstance(jti, str) or not 0 < len(jti) <= WORD_MAX:
        raise BadToken("jti", Why.BAD_CLAIM)  # nobody could revoke it
    return Principal(
        issuer=binding.alias,
        subject_id=subject_id(binding.url, sub),
        claims=binding.aliases(claims),
        tenants=binding.tenants.values(claims),
        jurisdictions=binding.jurisdictions.values(claims),
        expires_at=expires_at,
    )


def check_audience(claims: dict[str, Json], expected: str) -> None:
    """Return when ``aud`` is the expected text, or a list of texts with it in it."""
    found = claims.get("aud")
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise BadToken("aud", Why.WRONG_TOKEN_AUDIENCE)
    if expected not in listed:
        raise BadToken("aud", Why.WRONG_TOKEN_AUDIENCE)


def check_times(claims: dict[str, Json], *, now: float, age_max_s: float) -> float:
    """The time at which the token ends, in seconds since the epoch, leeway not added.

    Raises: BadToken when ``exp`` is over or absent, ``nbf`` or ``iat`` lie ahead, or the
    token is older than ``age_max_s``.
    """
    ends, issued = _number(claims, "exp"), _number(claims, "iat")
    begins = _number(claims, "nbf") if "nbf" in claims else issued
    if now >= ends + LEEWAY_S:
        raise BadToken("exp", Why.EXPIRED)
    if begins > now + LEEWAY_S or issued > now + LEEWAY_S:
        raise BadToken("nbf or iat", Why.NOT_YET_VALID)
    if now - issued > age_max_s + LEEWAY_S:
        raise BadToken("too old", Why.TOO_OLD)
    return min(ends, issued + age_max_s)


def _number(claims: dict[str, Json], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadToken(name, Why.BAD_CLAIM)
    try:
        number = float(value)
    except OverflowError:
        raise BadToken(name, Why.BAD_CLAIM) from None
    if not math.isfinite(number) or number <= 0:
        raise BadToken(name, Why.BAD_CLAIM)
    return number
