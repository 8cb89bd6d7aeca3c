"""Who sent this request: the verifier that teams behind the gateway import.

    KEYS = assertion.Keys("https://gateway.example/.well-known/jwks.json")
    caller = assertion.verify(request.headers, request.method, request.path,
                              audience="urn:portal:customer", keys=KEYS)

Laws
    * One header, one reading: absent, doubled, joined or padded is refused.
    * ES256 and our ``typ`` only, by a key of the published set that its ``kid`` names.
    * It counts for one upstream, one method and path, and one minute at most.
    * When the keys cannot be fetched, the last good ones count for ``stale_s`` more, then
      nothing is believed. A set that is broken never replaces one that is good.

A request can be repeated unchanged within its minute by whoever saw it: put TLS between the
gateway and you. Needs joserfc and nothing else that serves.
"""

from __future__ import annotations

import ipaddress
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from http.client import HTTPException
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from joserfc.jwk import ECKey

from gateway.authn.jws import BadToken, PublicKey, Unverified, claims_of, fits, read
from gateway.authn.jws import verify as verify_signature
from gateway.authn.key_source import BadKeySet, parse_jwks
from gateway.errors import GatewayError
from gateway.ingress.strict_json import Json

HEADER: Final = "x-gateway-assertion"
TYP: Final = "gateway-assertion+jwt"
ALGORITHM: Final = "ES256"
ANONYMOUS: Final = "anonymous"
LIFE_S: Final = 60
SKEW_S: Final = 5
"""How far the clocks of gateway and portal may differ."""
_DOCUMENT_BYTES_MAX: Final = 64 * 1024
_TEXTS: Final = ("sub", "audience", "profile", "digest", "rid")

Pairs = Iterable[tuple[str | bytes, str | bytes]]


class Itemised(Protocol):
    """Headers by name, each as often as it came: `http.server`'s, which are no Mapping."""

    def items(self) -> Iterable[tuple[str, Any]]: ...


Headers = Itemised | Pairs


class Named(Enum):
    """Which request an assertion has to name, where it is not one by its id."""

    ANY = "any"


class Fault(StrEnum):
    """Why an assertion is not believed."""

    ABSENT = "absent"
    REPEATED = "repeated"
    MALFORMED = "malformed"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    BAD_CLAIMS = "bad_claims"
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_REQUEST = "wrong_request"
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    TOO_LONG = "too_long"
    KEYS_UNAVAILABLE = "keys_unavailable"


class NotAsserted(GatewayError):
    """Refuse the request: nobody of whom the gateway speaks sent it. ``fault`` says why."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Of whom the gateway speaks. ``subject_id`` is a hash, or ``anonymous`` for a visitor.

    ``request_id`` is that of the request which was signed: with ``assertion = "each"`` this very
    one, else maybe an earlier GET or HEAD of this caller for this target.
    """

    subject_id: str
    audience: str
    profile: str
    policy_digest: str
    request_id: str
    expires_at: float


class Keys:
    """The gateway's published keys, fetched when first needed and kept.

    Older than ``fresh_s`` they are fetched anew by the next call, at most once per
    ``cooldown_s`` whatever arrives; a failure leaves the last good ones for ``stale_s``.
    May be shared by threads. Cost of a fetch: one request, ``timeout_s`` at most.
    """

    def __init__(
        self,
        url: str = "",
        *,
        document: bytes = b"",
        fresh_s: float = 60.0,
        stale_s: float = 3600.0,
        cooldown_s: float = 5.0,
        timeout_s: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """From ``url``, or fixed from the text of a set as ``document``.

        Raises: ValueError for neither, or an address that is neither https nor loopback.
        """
        if bool(url) == bool(document):
            raise ValueError("give either an address or a document")
        if url:
            _checked(url)
        self._url = url
        self._fresh_s, self._stale_s, self._cooldown_s = fresh_s, stale_s, cooldown_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._turn = threading.Lock()
        self._good_at = self._tried_at = float("-inf")
        self._keys: Mapping[str, PublicKey] = _keys_of(document) if document else {}

    def key(self, kid: str) -> PublicKey:
        """The key of this id. Raises: NotAsserted."""
        if self._url and self._clock() - self._good_at > self._fresh_s:
            self._refresh()
        found = self._current().get(kid)
        if found is None and self._url and self._refresh():
            found = self._current().get(kid)
        if found is None:
            raise NotAsserted(Fault.UNKNOWN_KEY)
        return found

    def _current(self) -> Mapping[str, PublicKey]:
        if self._url and self._clock() - self._good_at > self._fresh_s + self._stale_s:
            raise NotAsserted(Fault.KEYS_UNAVAILABLE)
        return self._keys

    def _refresh(self) -> bool:
        """Whether the keys are as new as can be. Nobody waits for another's fetch who has some."""
        if not self._turn.acquire(blocking=not self._keys):
            return False
        try:
            if self._clock() - self._tried_at < self._cooldown_s:
                return self._tried_at == self._good_at
            self._tried_at = self._clock()
            self._keys = _keys_of(_fetched(self._url, self._timeout_s))
            self._good_at = self._tried_at
            return True
        except (OSError, HTTPException, BadKeySet):
            return False
        finally:
            self._turn.release()


def verify(
    headers: Headers,
    method: str,
    path: str,
    *,
    audience: str,
    keys: Keys,
    issuer: str = "audience-gateway",
    request_id: str | Literal[Named.ANY] | None = Named.ANY,
    now: float | None = None,
) -> Caller:
    """Of whom the gateway speaks in this very request.

    ``headers`` as a mapping, as whatever gives pairs by ``items()`` (``self.headers`` of
    `http.server`), or as pairs; ``path`` as it arrived (a query is not looked at),
    ``audience`` the upstream's ``token_audience`` in the policy, ``issuer`` the ``gateway_id``.
    ``request_id``: the request's ``X-Request-Id``, where no other request may have this assertion
    (the upstream's setting is ``assertion = "each"``, and you refuse an id that you have seen);
    none or an empty one is refused, for a request without it did not come through the gateway.

    Raises: NotAsserted. Cost: 60 us, and a fetch of the keys now and then.
    """
    token = _read(_one(headers))
    key = keys.key(token.kid or "")
    try:
        verify_signature(token, key)
    except BadToken:
        raise NotAsserted(Fault.BAD_SIGNATURE) from None
    try:
        claims = claims_of(token)
    except BadToken:
        raise NotAsserted(Fault.BAD_CLAIMS) from None
    if claims.get("iss") != issuer:
        raise NotAsserted(Fault.WRONG_ISSUER)
    if claims.get("aud") != audience:
        raise NotAsserted(Fault.WRONG_AUDIENCE)
    expires_at = _in_time(claims, time.time() if now is None else now)
    if (claims.get("htm"), claims.get("htu")) != (method, path.partition("?")[0]):
        raise NotAsserted(Fault.WRONG_REQUEST)
    if request_id is not Named.ANY and (not request_id or claims.get("rid") != request_id):
        raise NotAsserted(Fault.WRONG_REQUEST)
    return _caller(claims, expires_at)


def _one(headers: Headers) -> bytes:
    # asked for what it can, not for what it is: to iterate over names would find no header at all
    pairs = headers.items() if hasattr(headers, "items") else headers
    found = [value for name, value in pairs if _text(name).lower().replace("_", "-") == HEADER]
    if len(found) > 1:
        raise NotAsserted(Fault.REPEATED)
    value = _text(found[0] or "") if found else ""
    if not value:
        raise NotAsserted(Fault.ABSENT)
    if not value.isascii():
        raise NotAsserted(Fault.MALFORMED)
    return value.encode("ascii")


def _read(text: bytes) -> Unverified:
    try:
        token = read(text, {ALGORITHM})
    except BadToken:
        raise NotAsserted(Fault.MALFORMED) from None
    if token.typ != TYP:
        raise NotAsserted(Fault.WRONG_TYPE)
    return token


def _in_time(claims: Mapping[str, Json], now: float) -> float:
    issued, expires = _seconds(claims, "iat"), _seconds(claims, "exp")
    if not 0 < expires - issued <= LIFE_S:
        raise NotAsserted(Fault.TOO_LONG)
    if now >= expires + SKEW_S:
        raise NotAsserted(Fault.EXPIRED)
    if now < issued - SKEW_S:
        raise NotAsserted(Fault.NOT_YET)
    return float(expires)


def _seconds(claims: Mapping[str, Json], name: str) -> int:
    found = claims.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise NotAsserted(Fault.BAD_CLAIMS)
    return found


def _caller(claims: Mapping[str, Json], expires_at: float) -> Caller:
    values = [claims.get(name) for name in _TEXTS]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) != len(values) or not all(texts[:3]):
        raise NotAsserted(Fault.BAD_CLAIMS)
    return Caller(
        subject_id=texts[0],
        audience=texts[1],
        profile=texts[2],
        policy_digest=texts[3],
        request_id=texts[4],
        expires_at=expires_at,
    )


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _keys_of(document: bytes) -> Mapping[str, PublicKey]:
    """The keys of a set by their ids. Raises: BadKeySet when none of them is usable."""
    found: dict[str, PublicKey] = {}
    for key in parse_jwks(document):
        kid = key.as_dict(private=False).get("kid")
        # an id is what it says: the key's own thumbprint
        if isinstance(key, ECKey) and fits(key, ALGORITHM) and kid == key.thumbprint():
            found[key.thumbprint()] = key
    if not found:
        raise BadKeySet("the key set holds no key that can sign for the gateway")
    return found


def _checked(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if parts.scheme != "https" and not (parts.scheme == "http" and loopback):
        raise ValueError("the address of the keys is neither https nor loopback")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from the address that was configured, and from no other."""

    def redirect_request(self, *_: object) -> None:
        return None


def _fetched(url: str, timeout_s: float) -> bytes:
    """Raises: OSError, also for any status but 200."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
    request = urllib.request.Request(url, headers={"accept": "application/json"})  # noqa: S310 - checked
    with opener.open(request, timeout=timeout_s) as answer:
        if answer.status != 200:
            raise urllib.error.URLError(f"status {answer.status}")
        ends_at, document = time.monotonic() + timeout_s, b""
        while piece := answer.read1(_DOCUMENT_BYTES_MAX):
            document += piece
            if len(document) > _DOCUMENT_BYTES_MAX or time.monotonic() > ends_at:
                raise BadKeySet("the key set is too large or too slow")
    return document
