"""Whom a request is from, by the gateway's signed word; without it there is no request."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

HEADER: Final = "x-gateway-assertion"
TYP: Final = "gateway-assertion+jwt"
LEEWAY_S: Final = 5


class NotFromGateway(Exception):
    """The request carries no assertion that this portal may believe."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """What the gateway says of the caller. ``subject_id`` is opaque."""

    subject_id: str
    audience: str
    profile: str
    digest: str
    request_id: str


class Doorkeeper:
    """Verifies assertions with the gateway's published keys, fetched once and when unknown."""

    def __init__(
        self, *, jwks_url: str, gateway_id: str, token_audience: str, http: httpx.Client
    ) -> None:
        self._jwks_url = jwks_url
        self._gateway_id = gateway_id
        self._token_audience = token_audience
        self._http = http
        self._keys: KeySet | None = None
        self._fetching = threading.Lock()

    def visitor(self, values: list[str], *, method: str, path: str) -> Visitor:
        """The caller whom the one assertion names. Raises NotFromGateway."""
        if len(values) != 1:
            raise NotFromGateway("not exactly one assertion")
        claims = self._claims(values[0])
        now = time.time()
        fits = (
            claims.get("iss") == self._gateway_id
            and claims.get("aud") == self._token_audience
            and claims.get("htm") == method
            and claims.get("htu") == path
            and now - LEEWAY_S < _number(claims.get("exp"))
            and _number(claims.get("iat")) < now + LEEWAY_S
        )
        if not fits:
            raise NotFromGateway("the assertion is for another place, request or time")
        return Visitor(
            *(str(claims[name]) for name in ("sub", "audience", "profile", "digest", "rid"))
        )

    def _claims(self, text: str) -> dict[str, Any]:
        for fresh in (False, True):
            try:
                token = jwt.decode(text, self._key_set(fresh=fresh), algorithms=["ES256"])
            except (JoseError, ValueError) as error:
                if fresh:
                    raise NotFromGateway("the signature is not the gateway's") from error
                continue
            if token.header.get("typ") != TYP:
                raise NotFromGateway("not an assertion")
            return dict(token.claims)
        raise NotFromGateway("no key")

    def _key_set(self, *, fresh: bool) -> KeySet:
        with self._fetching:
            if self._keys is None or fresh:
                try:
                    answer = self._http.get(self._jwks_url)
                    answer.raise_for_status()
                    self._keys = KeySet.import_key_set(answer.json())
                except (httpx.HTTPError, JoseError, ValueError) as error:
                    raise NotFromGateway("the gateway's keys cannot be had") from error
            return self._keys


def _number(value: object) -> float:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else 0.0
