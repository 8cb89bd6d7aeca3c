"""A compact JWS with one reading: strict encoding first, then the signature.

Theory
    Libraries forgive: padding, stray characters, a duplicate claim. Each forgiven form is a
    second text for the same token, hence a second key in caches and deny lists. So the text
    is checked here (alphabet, no padding, canonical last bits, one ``.`` grammar) before
    joserfc sees it, and the header may hold nothing that points to a key or an extension.

Source: RFC 7515, RFC 8725; attack log rows J1-J7, J14, J15, J23.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.errors import GatewayError
from gateway.ingress.strict_json import Json, NotStrictJson, parse_object
from gateway.reasons import Why

TOKEN_BYTES_MAX: Final = 16 * 1024
HEADER_BYTES_MAX: Final = 2 * 1024
PublicKey = RSAKey | ECKey | OKPKey

ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"}
    | {"EdDSA", "Ed25519"}
)
"""Every algorithm that may be listed at all: none with a shared secret, never ``none``."""

_PART: Final = re.compile(rb"[A-Za-z0-9_-]+")
_REFUSED_HEADERS: Final = frozenset(
    {"jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty", "p2c", "p2s", "epk"}
)
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


_VERIFIERS: Final = {
    name: model for name, model in jws.JWSRegistry.algorithms.items() if name in ASYMMETRIC
}
"""joserfc's algorithms alone: its registry reads the text a second time, which takes as long as
an ES256 signature."""


class BadToken(GatewayError):
    """The token cannot be believed. The text names no content; ``why`` is what logs tell."""

    def __init__(self, text: str, why: Why = Why.MALFORMED_TOKEN) -> None:
        self.why = why
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Unverified:
    """A token that is well-formed and not believed yet. Its payload must not be used."""

    text: bytes
    algorithm: str
    kid: str | None
    typ: str
    payload: bytes


def decode_base64url(part: bytes) -> bytes:
    """The bytes of a base64url text that is the only text for these bytes.

    Raises: BadToken for padding, foreign characters or loose last bits.
    """
    if not _PART.fullmatch(part) or len(part) % 4 == 1:
        raise BadToken("not base64url")
    try:
        raw = binascii.a2b_base64(part.translate(_FROM_URL) + b"=" * (-len(part) % 4))
    except binascii.Error:
        raise BadToken("not base64url") from None
    if binascii.b2a_base64(raw, newline=False).rstrip(b"=").translate(_TO_URL) != part:
        raise BadToken("not canonical base64url")
    return raw


_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


def read(text: bytes, algorithms: Collection[str] = ASYMMETRIC) -> Unverified:
    """The parts of a compact JWS, nothing of it believed.

    Raises: BadToken for anything but three strict parts and a plain header.
    """
    if len(text) > TOKEN_BYTES_MAX:
        raise BadToken("token too long")
    parts = text.split(b".")
    if len(parts) != 3:
        raise BadToken("not a compact JWS")
    raw_header, payload, _ = (decode_base64url(part) for part in parts)
    if len(raw_header) > HEADER_BYTES_MAX:
        raise BadToken("header too long")
    try:
        header = parse_object(raw_header)
    except NotStrictJson:
        raise BadToken("header is not strict JSON") from None
    if not _REFUSED_HEADERS.isdisjoint(header):
        raise BadToken("a header that names a key or an extension")
    algorithm, kid, typ = header.get("alg"), header.get("kid"), header.get("typ", "")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise BadToken("algorithm not allowed", Why.WRONG_ALGORITHM)
    if kid is not None and (not isinstance(kid, str) or not 0 < len(kid) <= 256):
        raise BadToken("kid is not a short text")
    if not isinstance(typ, str):
        raise BadToken("typ is not a text")
    return Unverified(text, algorithm, kid, typ.lower().removeprefix("application/"), payload)


def fits(key: PublicKey, algorithm: str) -> bool:
    """Whether a key may be used with an algorithm: type, curve, size, use and own ``alg``."""
    own = key.as_dict(private=False)
    if own.get("use", "sig") != "sig" or own.get("alg", algorithm) != algorithm:
        return False
    operations = own.get("key_ops")
    if operations is not None and "verify" not in operations:
        return False
    if algorithm in _RSA:
        return isinstance(key, RSAKey) and key.raw_value.key_size >= 2048
    if algorithm in _CURVES:
        return isinstance(key, ECKey) and own.get("crv") == _CURVES[algorithm]
    return isinstance(key, OKPKey) and own.get("crv") == "Ed25519"


def verify(token: Unverified, key: PublicKey) -> None:
    """Return when the signature is the key's.

    Raises: BadToken. Cost: 25 us (RS256), 85 us (ES256) to 110 us (EdDSA).
    """
    if token.algorithm not in _VERIFIERS or not fits(key, token.algorithm):
        raise BadToken("the key does not fit the algorithm", Why.WRONG_ALGORITHM)
    signed, _, signature = token.text.rpartition(b".")
    try:
        verifier = _VERIFIERS[token.algorithm]
        verifier.check_key(key)
        good = verifier.verify(signed, decode_base64url(signature), key)
    except (JoseError, ValueError) as error:
        raise BadToken("signature", Why.BAD_SIGNATURE) from error
    if not good:
        raise BadToken("signature", Why.BAD_SIGNATURE)


def claims_of(token: Unverified) -> dict[str, Json]:
    """The claims of a token that :func:`verify` accepted."""
    try:
        return parse_object(token.payload)
    except NotStrictJson:
        raise BadToken("claims are not strict JSON") from None
