"""The demo's identity provider: five issuers on one loopback port, for development only.

Laws
    * It binds to loopback or not at all, and answers requests for a loopback host only.
    * Every realm signs with its own key; a token of one is no token of another.
    * Clients are fixed (``people.py``); their secrets and the keys are made for one state
      folder, never shipped.

Grant: ``client_credentials`` (RFC 6749 section 4.4); tokens after RFC 9068 (ES256).
It knows nothing of audiences, policies or the gateway, except the gateway's token audience.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from joserfc import jwt
from joserfc.jwk import ECKey
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.demo.people import CLIENTS, Client, Realm

TOKEN_AUDIENCE: Final = "urn:ferrowick:gateway"  # noqa: S105 - a name, no secret
LIFE_S: Final = 600
FORM_BYTES_MAX: Final = 4_096
ALGORITHM: Final = "ES256"


class NotLoopback(Exception):
    """The development identity provider was asked to listen where others could reach it."""


def check_loopback(host: str) -> str:
    """``host`` itself when it is a loopback address, written as one.

    Raises NotLoopback for anything else, names included: a name may point elsewhere tomorrow.
    """
    with suppress(ValueError):  # a name is no address
        if ipaddress.ip_address(host).is_loopback:
            return host
    raise NotLoopback(
        f"`{host}` is not a loopback address; the development identity provider hands out"
        " tokens for invented people and must never be reached from elsewhere: use 127.0.0.1"
    )


class Directory:
    """Keys and secrets of one state folder, and the tokens that they make.

    ``base`` is the address that issuers begin with (``http://127.0.0.1:40001``).
    """

    def __init__(
        self, base: str, keys: Mapping[Realm, ECKey], client_secrets: Mapping[str, str]
    ) -> None:
        if set(keys) != set(Realm) or set(client_secrets) != {one.name for one in CLIENTS}:
            raise ValueError("every realm needs a key and every client a secret")
        self._base = base
        self._keys = keys
        self._secrets = client_secrets

    def issuer(self, realm: Realm) -> str:
        return f"{self._base}/{realm}"

    def token_url(self, realm: Realm) -> str:
        return f"{self.issuer(realm)}/token"

    def secret(self, name: str) -> str:
        """The secret of a client. Raises ``KeyError``."""
        return self._secrets[name]

    def client(self, realm: Realm, name: str, secret: str) -> Client | None:
        """The client of this realm that knows the secret; every miss costs the same."""
        kept = self._secrets.get(name, "")
        fits = hmac.compare_digest(kept.encode(), secret.encode()) and kept != ""
        found = next((one for one in CLIENTS if one.name == name and one.realm is realm), None)
        return found if fits else None

    def token(self, client: Client, *, now: float) -> str:
        """An access token of this client for the gateway, good for ``LIFE_S`` seconds."""
        issued = int(now)
        key = self._keys[client.realm]
        header = {"alg": ALGORITHM, "kid": key.thumbprint(), "typ": "at+jwt"}
        claims: dict[str, Any] = {
            "iss": self.issuer(client.realm),
            "sub": client.name,
            "client_id": client.name,
            "aud": TOKEN_AUDIENCE,
            "iat": issued,
            "exp": issued + LIFE_S,
            "jti": secrets.token_hex(12),
            **client.claims,
        }
        return jwt.encode(header, claims, key, algorithms=[ALGORITHM])

    def jwks(self, realm: Realm) -> dict[str, Any]:
        key = self._keys[realm]
        public = key.as_dict(private=False)
        return {"keys": [{**public, "kid": key.thumbprint(), "alg": ALGORITHM, "use": "sig"}]}

    def discovery(self, realm: Realm) -> dict[str, Any]:
        return {
            "issuer": self.issuer(realm),
            "token_endpoint": self.token_url(realm),
            "jwks_uri": f"{self.issuer(realm)}/jwks",
            "grant_types_supported": ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "response_types_supported": [],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }


def application(directory: Directory) -> Starlette:
    """The five issuers as one ASGI application. Bind it with ``check_loopback`` only."""

    async def discovery(request: Request) -> Response:
        realm = _realm(request)
        return JSONResponse(directory.discovery(realm)) if realm else _absent()

    async def jwks(request: Request) -> Response:
        realm = _realm(request)
        return JSONResponse(directory.jwks(realm)) if realm else _absent()

    async def token(request: Request) -> Response:
        realm = _realm(request)
        return await _token(request, directory, realm) if realm else _absent()

    return Starlette(
        routes=[
            Route("/{realm}/.well-known/openid-configuration", discovery),
            Route("/{realm}/jwks", jwks),
            Route("/{realm}/token", token, methods=["POST"]),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])
        ],
    )


async def _token(request: Request, directory: Directory, realm: Realm) -> Response:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            return _error(413, "invalid_request")
    try:
        form = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=8)
    except ValueError:
        return _error(400, "invalid_request")
    name, secret = _credential(request.headers.getlist("authorization"), form)
    client = directory.client(realm, name, secret)
    if client is None:
        return _error(401, "invalid_client", {"www-authenticate": 'Basic realm="demo"'})
    if form.get("grant_type") != ["client_credentials"]:
        return _error(400, "unsupported_grant_type")
    return JSONResponse(
        {
            "access_token": directory.token(client, now=time.time()),
            "token_type": "Bearer",
            "expires_in": LIFE_S,
        },
        headers={"cache-control": "no-store"},
    )


def _realm(request: Request) -> Realm | None:
    word = request.path_params["realm"]
    return next((realm for realm in Realm if realm.value == word), None)


def _credential(headers: Sequence[str], form: Mapping[str, list[str]]) -> tuple[str, str]:
    """Name and secret, from the one Basic header or from the form; two empty texts otherwise."""
    posted = form.get("client_id", []), form.get("client_secret", [])
    if not headers and all(len(values) == 1 for values in posted):
        return posted[0][0], posted[1][0]
    if len(headers) != 1 or not headers[0].startswith("Basic ") or posted[1]:
        return "", ""
    try:
        text = base64.b64decode(headers[0].removeprefix("Basic "), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    name, _, secret = text.partition(":")
    return unquote(name), unquote(secret)


def _absent() -> Response:
    return JSONResponse({"error": "not_found"}, status_code=404)


def _error(status: int, code: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(
        {"error": code},
        status_code=status,
        headers={"cache-control": "no-store", **(headers or {})},
    )
