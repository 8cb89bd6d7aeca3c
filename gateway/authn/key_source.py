"""The verification keys of one issuer: from its file or its address, kept and refreshed.

Laws
    * A key set belongs to one issuer; a ``kid`` selects inside it and is never looked up
      anywhere else.
    * One refresh at a time, and at most one per ``REFRESH_S`` whatever arrives: a flood of
      unknown ``kid`` values costs the identity provider nothing.
    * When the provider fails, the last good keys count for ``STALE_S`` more, then none do.
    * An empty or broken set is a failure, never "no keys needed".

Source: attack log rows J3, J10, J12, J13.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.authn.jws import BadToken, PublicKey, fits
from gateway.errors import Code, GatewayError, Refusal
from gateway.ingress.strict_json import NotStrictJson, parse_object
from gateway.reasons import Why

FRESH_S: Final = 300.0
REFRESH_S: Final = 30.0
STALE_S: Final = 3600.0
JWKS_BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 64

Fetch = Callable[[str], Awaitable[bytes]]
"""Obtains the body of a 200 answer from an address; raises GatewayError otherwise."""

_KINDS: Final[dict[str, Any]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}


class BadKeySet(GatewayError):
    """What an issuer publishes is not a usable key set."""


def parse_jwks(text: bytes) -> tuple[PublicKey, ...]:
    """The usable public keys of a JWKS text, in its order; unknown kinds are left out.

    Raises: BadKeySet for anything else than one non-empty set.
    """
    if len(text) > JWKS_BYTES_MAX:
        raise BadKeySet("the key set is too large")
    try:
        entries = parse_object(text).get("keys")
    except NotStrictJson:
        raise BadKeySet("the key set is not strict JSON") from None
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise BadKeySet("the key set has no list of keys")
    keys: list[PublicKey] = []
    for entry in entries:
        kind = entry.get("kty") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(kind, str) or kind not in _KINDS:
            continue
        public = {name: value for name, value in entry.items() if name not in _PRIVATE}
        try:
            keys.append(_KINDS[kind].import_key(public))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise BadKeySet("the key set holds no usable key")
    return tuple(keys)


_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class KeySource:
    """The keys of one issuer. ``text`` is a fixed set; else ``uri`` is fetched when needed."""

    def __init__(
        self,
        *,
        uri: str,
        text: str,
        fetch: Fetch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._uri = uri
        self._fetch = fetch
        self._clock = clock
        self._keys: tuple[PublicKey, ...] = () if uri else parse_jwks(text.encode())
        self._good_at = clock() if self._keys else float("-inf")
        self._tried_at = float("-inf")
        self._turn = asyncio.Lock()
        self.generation = 0

    @property
    def healthy(self) -> bool:
        """Whether tokens of this issuer can be verified now. False degrades readiness."""
        return not self._uri or self._clock() - self._good_at < FRESH_S + STALE_S

    async def key_for(self, kid: str | None, algorithm: str) -> PublicKey:
        """The one key that a token's header selects.

        Raises: BadToken when there is none or more than one; Refusal
        ``identity_unavailable`` when the issuer's keys cannot be had at all.
        """
        if self._uri and self._clock() - self._good_at > FRESH_S:
            await self._refresh()
        if not self.healthy:
            raise Refusal(
                Code.IDENTITY_UNAVAILABLE,
                "no keys of the issuer",
                why=Why.ISSUER_KEYS_UNAVAILABLE,
            )
        found = self._select(kid, algorithm)
        if not found and self._uri and await self._refresh():
            found = self._select(kid, algorithm)
        if len(found) != 1:
            raise BadToken("no single key for this header", Why.UNKNOWN_KEY)
        return found[0]

    def _select(self, kid: str | None, algorithm: str) -> list[PublicKey]:
        fitting = [key for key in self._keys if fits(key, algorithm)]
        if kid is None:
            return fitting
        return [key for key in fitting if key.as_dict(private=False).get("kid") == kid]

    async def _refresh(self) -> bool:
        """Fetch once for everybody who waits; False when it was too soon or failed."""
        async with self._turn:
            if self._clock() - self._tried_at < REFRESH_S:
                return self._clock() - self._good_at < REFRESH_S
            self._tried_at = self._clock()
            try:
                keys = parse_jwks(await self._fetch(self._uri))
            except GatewayError:
                return False
            self._good_at = self._clock()
            if [key.as_dict(private=False) for key in keys] != [
                key.as_dict(private=False) for key in self._keys
            ]:
                self._keys = keys
                self.generation += 1
            return True
