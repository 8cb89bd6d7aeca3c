"""Which headers cross the gateway, in both directions.

Laws
    * What an upstream may take for identity, provenance or routing never comes from a client:
      it is removed first and set by us afterwards, present also when it is empty.
    * Names with anything but ``a-z 0-9 -`` are removed: servers fold ``_``, and through CGI
      ``.`` or ``!`` too, into what they make of ``-`` (CVE-2026-88879).
    * What ``Connection`` lists is removed before ours is added, so a client cannot make us
      drop our own.

Source: attack log "Header rules", rows B1-B17, F4-F6, S13; RFC 9110 section 7.6.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from gateway.errors import Headers
from gateway.relay.upstream import UpstreamInvalid

SUBJECT: Final = b"x-gateway-subject"
AUDIENCE: Final = b"x-gateway-audience"
PROFILE: Final = b"x-gateway-profile"
COOKIE_PREFIXES: Final = (b"__host-gateway", b"__secure-gateway", b"gateway_", b"gateway-")

_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
    | {b"http2-settings", b"content-length", b"host", b"expect"}
)
_CLIENT_ONLY: Final = frozenset(
    {b"authorization", b"forwarded", b"x-real-ip", b"true-client-ip", b"x-client-ip"}
    | {b"x-cluster-client-ip", b"fastly-client-ip", b"fly-client-ip", b"do-connecting-ip"}
    | {b"x-http-method", b"x-http-method-override", b"x-method-override", b"x-rewrite-url"}
    | {b"x-host", b"x-scheme", b"x-url-scheme", b"x-proto", b"front-end-https", b"client-ip"}
    | {b"x-correlation-id", b"traceparent", b"tracestate", b"baggage", b"b3", b"x-request-id"}
    | {b"x-email", b"x-audience", b"x-account-id", b"x-admin", b"x-retrieval-key", b"user"}
    | {b"x-custom-ip-authorization", b"x-sendfile", b"x-reproxy-url", b"x-override-url"}
    | {b"api-key", b"apikey", b"x-api-key", b"x-apikey", b"token", b"x-token", b"private-token"}
    | {b"x-access-token", b"x-id-token", b"x-session-token", b"x-amz-security-token"}
    | {b"x-jwt", b"x-subject", b"x-principal", b"x-identity", b"x-scope", b"x-scopes"}
    | {b"x-permissions", b"x-spiffe-id", b"teleport-jwt-assertion", b"early-data"}
)
_CLIENT_PREFIXES: Final = (
    *(b"proxy-", b"x-proxy-", b"x-forward", b"x-original-", b"x-envoy-", b"x-gateway-"),
    *(b"x-auth", b"x-remote-", b"remote-", b"impersonate-", b"x-ssl-", b"ssl-client-"),
    *(b"x-user", b"x-role", b"x-group", b"x-tenant", b"x-org", b"x-identity-", b"x-principal-"),
    *(b"x-client-cert", b"x-client-dn", b"x-client-verify", b"x-tls-client-", b"client-cert"),
    *(b"oidc-", b"x-oidc-", b"x-okta-", b"x-saml-", b"tailscale-", b"x-appengine-"),
    *(b"x-pomerium-", b"x-webauth-", b"x-vouch-", b"x-azure-", b"x-apigateway-"),
    *(b"x-amzn-oidc-", b"x-goog-authenticated-", b"x-goog-iap-", b"x-ms-client-principal"),
    *(b"x-middleware-", b"x-accel-", b"x-arr-", b"x-token-", b"x-b3-", b"x-consumer-"),
    *(b"x-credential-", b"x-jwt-", b"x-idp-", b"x-sso-", b"cf-"),
)
_RANGE: Final = frozenset({b"range", b"if-range"})
_CONDITIONAL: Final = frozenset(
    {b"if-none-match", b"if-match", b"if-modified-since", b"if-unmodified-since"}
)

_OUT: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
    | {b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"server", b"date"}
    | {b"via", b"x-powered-by", b"etag", b"last-modified", b"age", b"expires", b"pragma"}
    | {b"cache-control", b"vary", b"x-request-id", b"x-policy-digest", b"alt-svc"}
    | {b"accept-ranges", b"content-length", b"surrogate-control", b"surrogate-key"}
    | {b"edge-control", b"x-cache-control", b"x-litespeed-cache-control", b"cache-tag"}
    | {b"x-sendfile", b"x-lighttpd-send-file", b"x-reproxy-url", b"no-vary-search"}
)
_OUT_PREFIXES: Final = (b"x-gateway-", b"x-accel-", b"x-envoy-", b"x-middleware-")
_OUT_SUFFIX: Final = b"cdn-cache-control"
"""RFC 9213: words for one kind of cache, which then does not read Cache-Control."""
_PLAIN: Final = re.compile(rb"[a-z0-9-]+")
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")

_PRIVATE: Final = (b"cache-control", b"private, no-store")
_VARY: Final = b"Authorization, Cookie"
PRIVATE: Final[Headers] = (_PRIVATE, (b"vary", _VARY))


class _Class(Enum):
    """What is done with a name, whatever its value."""

    DROP = auto()
    KEEP = auto()
    INVALID = auto()
    COOKIE = auto()
    VARY = auto()
    LENGTH = auto()
    CONNECTION = auto()
    UNINSPECTED = auto()
    """Kept where the answer is not read by us."""


def _cached(classify: Callable[[bytes], _Class]) -> Callable[[bytes], _Class]:
    """Remembers names of an ordinary length: others' names must not fill our memory."""
    known: dict[bytes, _Class] = {}

    def class_of(name: bytes) -> _Class:
        found = known.get(name)
        if found is None:
            found = classify(name)
            if len(name) <= 64 and len(known) < 4096:
                known[name] = found
        return found

    return class_of


@_cached
def _class_of_clients(name: bytes) -> _Class:
    if name == b"connection":
        return _Class.CONNECTION
    if (
        not _PLAIN.fullmatch(name)
        or name in _HOP
        or name in _CLIENT_ONLY
        or name.startswith(_CLIENT_PREFIXES)
        or name in _CONDITIONAL
    ):
        return _Class.DROP
    if name in _RANGE or name == b"accept-encoding":
        return _Class.UNINSPECTED
    return _Class.COOKIE if name == b"cookie" else _Class.KEEP


@_cached
def _class_of_upstreams(name: bytes) -> _Class:
    if not _TOKEN.fullmatch(name):
        return _Class.INVALID
    if name == b"connection":
        return _Class.CONNECTION
    if name == b"vary":
        return _Class.VARY
    if name == b"content-length":
        return _Class.LENGTH
    if name in _OUT or name.startswith(_OUT_PREFIXES) or name.endswith(_OUT_SUFFIX):
        return _Class.DROP
    return _Class.COOKIE if name == b"set-cookie" else _Class.KEEP


def of_client(headers: Headers, *, inspected: bool) -> list[tuple[bytes, bytes]]:
    """What of a client's headers may go on; ``inspected`` = the answer will be read by us."""
    kept: list[tuple[bytes, bytes]] = []
    listed = False
    for header in headers:
        match _class_of_clients(header[0]):
            case _Class.KEEP:
                kept.append(header)
            case _Class.UNINSPECTED if not inspected:
                kept.append(header)
            case _Class.COOKIE:
                value = foreign_cookies(header[1])
                if value:
                    kept.append((header[0], value))
            case _Class.CONNECTION:
                listed = True
            case _:
                continue
    if listed:
        kept = _without(kept, _listed(headers))
    if inspected:
        kept.append((b"accept-encoding", b"identity"))
    return kept


def of_upstream(
    headers: list[tuple[bytes, bytes]], *, status: int, method: str
) -> list[tuple[bytes, bytes]]:
    """What of an upstream's headers may go back, with our caching rules.

    Raises: UpstreamInvalid for a name or value that no client should read.
    """
    # all at once: what no single value may hold, all together may not
    if not _VALUE.fullmatch(b"".join([value for _, value in headers])):
        raise UpstreamInvalid("a header that cannot be passed on")
    kept: list[tuple[bytes, bytes]] = []
    length: tuple[bytes, bytes] | None = None
    vary = _VARY
    listed = False
    for header in headers:
        name, value = header
        match _class_of_upstreams(name):
            case _Class.DROP:
                continue
            case _Class.KEEP:
                kept.append(header)
            case _Class.LENGTH:
                if _has_length(status, method, value):
                    length = header
            case _Class.COOKIE:
                if not _is_ours(value):
                    kept.append(header)
            case _Class.VARY:
                vary += b", " + value
            case _Class.CONNECTION:
                listed = True
            case _Class.INVALID:
                raise UpstreamInvalid("a header that cannot be passed on")
            case _:
                continue
    if listed and not (names := _listed(headers)) <= _ALWAYS_LISTED:
        kept = _without(kept, names)
    if length is not None:
        kept.append(length)
    kept.append(_PRIVATE)
    kept.append((b"vary", vary))
    return kept


_ALWAYS_LISTED: Final = frozenset({b"keep-alive"})
"""Dropped whoever lists it: nothing else is to be done."""


def _without(
    headers: list[tuple[bytes, bytes]], names: frozenset[bytes]
) -> list[tuple[bytes, bytes]]:
    return [header for header in headers if header[0] not in names]


def foreign_cookies(value: bytes) -> bytes:
    """A Cookie value without the cookies of our own namespace."""
    pairs = [pair.strip() for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if pair and not _is_ours(pair))


def _is_ours(cookie: bytes) -> bool:
    """Whether a reader may take this for one of ours; ``=name=value`` is a nameless cookie."""
    return cookie.lower().lstrip(b" \t=").startswith(COOKIE_PREFIXES)


def _has_length(status: int, method: str, value: bytes) -> bool:
    return status not in {204, 304} and method != "HEAD" and _DIGITS.fullmatch(value) is not None


def _listed(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The names that a Connection header declares to be for one hop."""
    return frozenset(
        name.strip().lower()
        for header, value in headers
        if header == b"connection"
        for name in value.split(b",")
    )
