"""Who sent this request: from exactly one bearer token, or nobody.

Laws
    * Any credential that is not perfect is a refusal. *Absent* is the only way to be
      anonymous; *invalid* never falls back to it.
    * The raw token and its claims stop here; what goes on are our aliases.
    * A verified token is remembered for a minute at most, by the hash of its bytes and of the
      policy digest it was believed under, within one generation of keys: another digest knows
      nothing of it. Failures are not remembered.
    * What is revoked is as bad as what was never signed, from the moment that a list says so.

Source: RFC 6750; attack log rows J1-J23.
"""

from __future__ import annotations

import collections
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway.authn.claims import issuer_of, principal_of
from gateway.authn.jws import BadToken, Unverified, claims_of, read, verify
from gateway.authn.key_source import Fetch, KeySource
from gateway.authn.revoked import Revoked
from gateway.errors import Code, Headers, Refusal, challenge
from gateway.reasons import Why
from policies.bindings import IssuerBinding
from policies.decision import PolicyDigest
from policies.subject import Principal

REMEMBERED_S: Final = 60.0
REMEMBERED_MAX: Final = 10_000
_FREED_AT_ONCE: Final = 32
_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] ([A-Za-z0-9\-._~+/]+=*)")
_JWT_CHARACTERS: Final = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"  # of a compact JWS
)


def bearer_of(headers: Headers) -> bytes | None:
    """The one bearer token of a request, or None when there is no credential at all.

    Raises: Refusal ``unauthenticated`` for two, for another scheme or a malformed one.
    """
    found = [value for name, value in headers if name == b"authorization"]
    if not found:
        return None
    # the usual form first: the pattern below takes 4 us for a token of 900 bytes
    if len(found) == 1 and found[0].startswith(b"Bearer "):
        token = found[0][7:]
        if token and not token.translate(None, _JWT_CHARACTERS):
            return token
    match = _BEARER.fullmatch(found[0].strip(b" \t")) if len(found) == 1 else None
    if match is None:
        raise unauthenticated(Why.MALFORMED_CREDENTIAL)
    return match.group(1)


def unauthenticated(why: Why, reason: str = "", *, issuer: str = "") -> Refusal:
    """The refusal of a credential that was sent and is not believed: the same answer whatever is
    wrong with it. ``issuer`` is the alias of the one that it names."""
    return Refusal(
        Code.UNAUTHENTICATED,
        reason or why,
        why=why,
        issuer=issuer,
        headers=challenge("invalid_token"),
    )


class Authenticator:
    """Turns bearer tokens into principals under one snapshot's issuers at a time."""

    def __init__(
        self,
        *,
        fetch: Fetch,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        revoked: Revoked | None = None,
    ) -> None:
        self._fetch = fetch
        self._revoked = revoked or Revoked()
        self._past = 0
        self._wall_clock = wall_clock
        self._clock = clock
        self._sources: dict[tuple[str, str, str], KeySource] = {}
        self._remembered: collections.OrderedDict[bytes, tuple[float, Principal]]
        self._remembered = collections.OrderedDict()
        self._generation = 0
        self._forgotten: list[collections.OrderedDict[bytes, tuple[float, Principal]]] = []

    @property
    def healthy(self) -> bool:
        """Whether the keys of every issuer in use can be had."""
        return all(source.healthy for source in self._sources.values())

    @property
    def generation(self) -> int:
        """A number that there never was when other keys verify or others are revoked: what was
        believed under one before is void."""
        generation = self._past
        for source in self._sources.values():
            generation += source.generation
        return generation

    @property
    def revoked(self) -> Revoked:
        """Who is not believed now."""
        return self._revoked

    def revoke(self, revoked: Revoked) -> None:
        """Believe none of these from now on, and only these not. The very same object changes
        nothing; a long list is not compared."""
        if revoked is not self._revoked:
            self._revoked = revoked
            self._past += 1

    def refuse_revoked(self, caller: Principal) -> None:
        """Raises: Refusal ``unauthenticated`` for one who is revoked, whoever speaks for it."""
        if self._revoked.subject(caller.subject_id, self._wall_clock()):
            raise unauthenticated(Why.REVOKED, issuer=caller.issuer)

    def believed_until(self, token: bytes, *, digest: PolicyDigest) -> float:
        """For how long a token that was verified is believed without another look; 0: not.

        Keys may have changed since it was verified, and nobody been identified since.
        """
        if self.generation != self._generation:
            return 0.0
        kept = self._remembered.get(_name(token, digest))
        return kept[0] if kept is not None else 0.0

    async def principal(
        self, token: bytes, *, issuers: Sequence[IssuerBinding], digest: PolicyDigest
    ) -> Principal:
        """The caller whom this token names.

        Raises: Refusal ``unauthenticated``, or ``identity_unavailable`` when the issuer's
        keys cannot be had. Cost: 1 us remembered, else one signature check.
        """
        now = self._wall_clock()
        self._forget_on_change()
        name = _name(token, digest)
        if (kept := self._remembered.get(name)) is not None:
            if kept[0] > now:
                self._remembered.move_to_end(name)
                return kept[1]
            del self._remembered[name]
        principal = await self._verified(token, issuers, now)
        self._forget_on_change()  # fetching keys may have changed their generation
        self._remembered[name] = (min(principal.expires_at, now + REMEMBERED_S), principal)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return principal

    async def _verified(
        self, token: bytes, issuers: Sequence[IssuerBinding], now: float
    ) -> Principal:
        issuer = ""
        try:
            unverified = read(token)
            # The issuer is read before it is believed, only to find whose keys must have signed,
            # and for operators to know whose token was refused.
            url = issuer_of(claims_of(unverified))
            binding = next((one for one in issuers if one.url == url), None)
            if binding is None:
                raise BadToken("issuer", Why.UNKNOWN_ISSUER)
            issuer = binding.alias
            return await self._believed(unverified, binding, now)
        except BadToken as error:
            raise unauthenticated(error.why, str(error), issuer=issuer) from error
        except Refusal as refusal:
            refusal.issuer = issuer
            raise

    async def _believed(
        self, unverified: Unverified, binding: IssuerBinding, now: float
    ) -> Principal:
        """Whom a token of this issuer names. Raises: BadToken; Refusal, see `KeySource`."""
        if unverified.algorithm not in binding.algorithms:
            raise BadToken("algorithm not allowed for this issuer", Why.WRONG_ALGORITHM)
        key = await self._source(binding).key_for(unverified.kid, unverified.algorithm)
        verify(unverified, key)
        claims = claims_of(unverified)
        principal = principal_of(claims, typ=unverified.typ, binding=binding, now=now)
        revoked = self._revoked
        if revoked.token(claims, now) or revoked.subject(principal.subject_id, now):
            raise BadToken("revoked", Why.REVOKED)
        return principal

    def _source(self, binding: IssuerBinding) -> KeySource:
        name = (binding.alias, binding.jwks_uri, binding.jwks)
        if name not in self._sources:
            for stale in [one for one in self._sources if one[0] == binding.alias]:
                self._past += self._sources.pop(stale).generation + 1
            self._sources[name] = KeySource(
                uri=binding.jwks_uri, text=binding.jwks, fetch=self._fetch, clock=self._clock
            )
        return self._sources[name]

    def _forget_on_change(self) -> None:
        """Other keys: nothing remembered counts. It is freed bit by bit, a full memory of ten
        thousand callers would take some ten milliseconds at once."""
        generation = self.generation
        if generation != self._generation:
            self._forgotten.append(self._remembered)
            self._remembered = collections.OrderedDict()
            self._generation = generation
        while self._forgotten:
            going = self._forgotten[-1]
            for _ in range(min(_FREED_AT_ONCE, len(going))):
                going.popitem()
            if going:
                break
            self._forgotten.pop()


def _name(token: bytes, digest: PolicyDigest) -> bytes:
    return hashlib.sha256(digest.encode() + b" " + token).digest()
