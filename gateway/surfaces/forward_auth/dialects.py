"""How each proxy says what it was asked: one pair of names per dialect, never a guess.

Theory
    Every proxy passes a client's own headers on, and each knows only the names that it sets
    itself: under nginx a client's ``X-Forwarded-Uri`` arrives, under Traefik and Caddy its
    ``X-Original-URI``. An endpoint that read both would let a client choose what is decided.
    So a dialect reads its own names, each exactly once, and refuses where another's are present.

Envoy sends the method and, after a prefix, the path of the request itself, but percent-decodes
that path for the decision and not for the upstream. Its dialect reads names that its
configuration sets from the very bytes which go to the upstream.

Source: attack log rows B1, B6, B9 and "Forward-auth dialects"; library survey section 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.authn import delegation
from gateway.errors import Code, Headers, Refusal
from gateway.relay import assertion, headers
from policies.bindings import TrustedPeer

PREFIX: Final = b"/-/authz/"
_OURS: Final = frozenset({500, 502, 503, 504})
_SCHEMES: Final = frozenset({b"http", b"https"})


class Misasked(Refusal):
    """The proxy does not ask as its dialect says: a fault of its configuration."""

    def __init__(self, reason: str) -> None:
        super().__init__(Code.BAD_REQUEST, reason)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names under which one proxy tells method, target and host of a request.

    ``denies`` are the statuses that the proxy hands to the caller as they are; empty: all.
    """

    name: str
    method: str
    target: str
    host: str
    denies: frozenset[int] = frozenset()

    @property
    def words(self) -> frozenset[str]:
        """Every name that a peer must be believed under to ask in this dialect."""
        return frozenset({self.method, self.target, self.host})

    def status(self, refused: int) -> int:
        """What a refusal is sent as: nginx makes a 500 of all but 401 and 403, Envoy an error
        of its own of every 5xx, which only what is our fault should be."""
        if refused in _OURS:
            return refused
        handed_on = refused in self.denies if self.denies else refused < 500
        return refused if handed_on else 403


DIALECTS: Final[Mapping[bytes, Dialect]] = {
    PREFIX + b"nginx": Dialect(
        "nginx",
        "x-original-method",
        "x-original-uri",
        "x-original-host",
        denies=frozenset({401, 403}),
    ),
    PREFIX + b"envoy": Dialect(
        "envoy", "x-ext-authz-method", "x-ext-authz-path", "x-ext-authz-host"
    ),
    PREFIX + b"traefik": Dialect(
        "traefik", "x-forwarded-method", "x-forwarded-uri", "x-forwarded-host"
    ),
    PREFIX + b"caddy": Dialect(
        "caddy", "x-forwarded-method", "x-forwarded-uri", "x-forwarded-host"
    ),
}
_PAIRS: Final = frozenset(
    name for dialect in DIALECTS.values() for name in (dialect.method, dialect.target)
)
_TOLD: Final = _PAIRS | frozenset(dialect.host for dialect in DIALECTS.values())
_IDENTITY: Final = frozenset(
    {headers.SUBJECT, headers.AUDIENCE, headers.PROFILE, assertion.HEADER, delegation.HEADER}
)
_MARKS: Final = re.compile(rb"[^a-z0-9]")
"""What CGI-like readers fold: ``X_Role``, ``X.Role`` and ``X-Role`` are one name to them."""
_PLAIN: Final = frozenset(name.encode("ascii") for name in _TOLD) | _IDENTITY
_LENGTHS: Final = frozenset(map(len, _PLAIN))
_FOREIGN: Final[Mapping[str, frozenset[bytes]]] = {
    dialect.name: frozenset(name.encode("ascii") for name in _PAIRS - dialect.words)
    for dialect in DIALECTS.values()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """The request that a proxy was asked, as it tells it. ``client`` is empty when it does not.

    ``headers`` are the client's own, and one Host: the one that the proxy was asked with.
    """

    method: str
    raw_path: bytes
    query: bytes
    scheme: str
    client: str
    headers: Headers

    @property
    def opens_socket(self) -> bool:
        """Whether it is a WebSocket handshake. ``Upgrade`` is between neighbours, so a proxy
        does not tell it; the shipped files upgrade nothing without a key of the handshake."""
        return any(name.startswith(b"sec-websocket-") for name, _ in self.headers)


def read(dialect: Dialect, told: Headers, peer: TrustedPeer) -> Forwarded:
    """The forwarded request.

    Raises: Misasked for a name of another dialect and for one that is missing, empty or said
    twice; Refusal ``bad_request`` for a name that some stacks fold into one of ours.
    """
    foreign = _FOREIGN[dialect.name]
    for name, _ in told:
        if name in foreign:
            raise Misasked("another dialect's words")
        # no folding takes a byte away or adds one
        if name not in _PLAIN and len(name) in _LENGTHS and _MARKS.sub(b"-", name) in _PLAIN:
            raise Refusal(Code.BAD_REQUEST, "a name that some stacks fold into ours")
    method = _once(told, dialect.method)
    target = _once(told, dialect.target)
    raw_path, _, query = target.partition(b"?")
    scheme = [value for name, value in told if name == b"x-forwarded-proto"]
    believed = "x-forwarded-proto" in peer.headers and len(scheme) == 1 and scheme[0] in _SCHEMES
    host = (b"host", _once(told, dialect.host))
    return Forwarded(
        method=method.decode("latin-1"),
        raw_path=raw_path,
        query=query,
        scheme=scheme[0].decode("ascii") if believed else "http",
        client=_client(told, peer),
        headers=(host, *(one for one in told if one[0] != b"host")),
    )


def _once(told: Headers, name: str) -> bytes:
    wanted = name.encode("ascii")
    found = [value for one, value in told if one == wanted]
    if len(found) != 1 or not found[0]:
        raise Misasked(f"`{name}` is not said exactly once")
    return found[0]


def _client(told: Headers, peer: TrustedPeer) -> str:
    """The address that the proxy itself saw: the last of its chain."""
    if "x-forwarded-for" not in peer.headers:
        return ""
    chain = b",".join(value for name, value in told if name == b"x-forwarded-for")
    return chain.rpartition(b",")[2].strip().decode("latin-1")
