"""The signed word of the gateway to an upstream: who this request is from, for a minute."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

import orjson

from gateway.authn.own_keys import OwnKeys
from policies.decision import PolicyDigest

HEADER: Final = b"x-gateway-assertion"
LIFE_S: Final = 60
READS: Final = frozenset(("GET", "HEAD"))
"""Methods whose requests may share one: repeated, they change nothing (RFC 9110, 9.2.1)."""
REUSED_S: Final = 20.0
"""How long a shared one is handed out again."""
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
    said = wording(gateway_id, token_audience, subject_id, audience, profile, digest, method, path)
    return signed(keys, said, request_id, now)


Wording = tuple[bytes, bytes, bytes]
"""Claims as JSON, around the moment and the request id."""


@functools.lru_cache(maxsize=1_024)
def wording(
    gateway_id: str,
    token_audience: str,
    subject_id: str,
    audience: str,
    profile: str,
    digest: PolicyDigest,
    method: str,
    path: str,
) -> Wording:
    """What all assertions of one caller about one target say."""
    whose = {"iss": gateway_id, "aud": token_audience, "sub": subject_id}
    placed = {"audience": audience, "profile": profile, "digest": digest}
    what = {"htm": method, "htu": path}
    return (
        orjson.dumps(whose)[:-1] + b',"iat":',
        b"," + orjson.dumps(placed)[1:-1] + b',"rid":',
        b"," + orjson.dumps(what)[1:],
    )


def signed(keys: OwnKeys, said: Wording, request_id: str, now: float) -> bytes:
    """The assertion of one request.

    Cost: the signature, and 2 us.
    """
    at = int(now)
    text = b'%b%d,"exp":%d%b%b%b' % (
        said[0],
        at,
        at + LIFE_S,
        said[1],
        orjson.dumps(request_id),
        said[2],
    )
    return keys.sign_text(text, typ=TYP)


class Shared:
    """An assertion for the reads of one caller at one target, signed once in ``REUSED_S``.

    It names the read that it was signed for. It is made anew under another ring of keys. Whoever
    gets it has it for 39 s at least: its moments are whole seconds.
    """

    __slots__ = ("_keys", "_ring", "_said", "_text", "_until")

    def __init__(self, keys: OwnKeys, said: Wording) -> None:
        self._keys = keys
        self._said = said
        self._ring: Sequence[object] = ()
        self._until = 0.0
        self._text = b""

    def text(self, request_id: str, now: float) -> bytes:
        """The assertion as it counts now, of this request if none counts yet."""
        ring = self._keys.keys
        if not (self._until - REUSED_S <= now < self._until and self._ring is ring):
            # first of all: where this ring cannot sign, what another one signed is not its word
            self._text = signed(self._keys, self._said, request_id, now)
            self._ring, self._until = ring, now + REUSED_S
        return self._text
