"""The gateway's own ES256 keys: they sign what a hop carries, and are published.

The first key of the ring signs; the others are only published, so that what they signed a
minute ago still verifies. Rotation = put the new key first, later take the old one away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from gateway.authn.jws import PublicKey
from gateway.errors import GatewayError

ALGORITHM: Final = "ES256"
_PEM: Final = re.compile(
    rb"-----BEGIN (?:EC )?PRIVATE KEY-----.+?-----END (?:EC )?PRIVATE KEY-----", re.DOTALL
)


class BadKeyFile(GatewayError):  # noqa: N818 - reads as what it is
    """The key file holds no P-256 private key, or something that is not one."""


class OwnKeys:
    """A ring of P-256 keys, newest first. Key ids are RFC 7638 thumbprints."""

    def __init__(self, keys: Sequence[ECKey]) -> None:
        if not keys:
            raise BadKeyFile("no key; generate one, or name another file")
        for key in keys:
            if not key.is_private or key.as_dict(private=False).get("crv") != "P-256":
                raise BadKeyFile("a key is not a P-256 private key; ES256 needs one")
        self._signer = keys[0]
        self._kid = keys[0].thumbprint()
        self._public: dict[str, PublicKey] = {
            key.thumbprint(): ECKey.import_key(key.as_dict(private=False)) for key in keys
        }
        self._registry = jws.JWSRegistry(algorithms=[ALGORITHM])

    @classmethod
    def generate(cls) -> OwnKeys:
        """A ring of one fresh key, known to this process only."""
        return cls([ECKey.generate_key("P-256", auto_kid=False)])

    @classmethod
    def from_pem(cls, text: bytes) -> OwnKeys:
        """The ring of a PEM file with one or more private keys, the newest first.

        Raises: BadKeyFile.
        """
        try:
            return cls([ECKey.import_key(block) for block in _PEM.findall(text)])
        except (JoseError, ValueError, TypeError) as error:
            raise BadKeyFile("the file holds something that is not a private key") from error

    def sign(self, claims: Mapping[str, Any], *, typ: str) -> bytes:
        """A compact JWT by the newest key. Cost: about 40 us."""
        header = {"alg": ALGORITHM, "kid": self._kid, "typ": typ}
        text = jws.serialize_compact(
            header, orjson.dumps(dict(claims)), self._signer, registry=self._registry
        )
        return text.encode("ascii")

    def public(self, kid: str | None) -> PublicKey | None:
        """The public half of a key of the ring."""
        return self._public.get(kid or "")

    def jwks(self) -> bytes:
        """The published key set."""
        keys = [
            {**key.as_dict(private=False), "kid": kid, "alg": ALGORITHM, "use": "sig"}
            for kid, key in self._public.items()
        ]
        return orjson.dumps({"keys": keys})
