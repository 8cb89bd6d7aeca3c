"""Who may sign: the public keys of an environment, and how many of them a widening needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from policies.errors import ReleaseRefused
from policies.release.manifest import ENVIRONMENT

DEVELOPMENT: Final = "development"
WIDENING_SIGNERS: Final = 2
SIGNER: Final = re.compile(r"[a-z][a-z0-9._@-]{0,62}")
_PEM: Final = re.compile(rb"-----BEGIN PRIVATE KEY-----.+?-----END PRIVATE KEY-----", re.DOTALL)
_NAMED: Final = re.compile(rb"signer: ([\x21-\x7e]{1,63})\s*\n")


@dataclass(frozen=True, slots=True)
class TrustAnchor:
    """What an environment believes. ``keys`` is signer's name -> public Ed25519 key.

    ``widening_signers`` distinct signers let a release stand by itself.
    """

    environment: str
    keys: Mapping[str, OKPKey]
    widening_signers: int = WIDENING_SIGNERS
    _signed: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        if not ENVIRONMENT.fullmatch(self.environment):
            raise _unusable(f"`{self.environment}` is not a name of an environment")
        if not self._signed:
            return
        if self.widening_signers < 1 or len(self.keys) < self.widening_signers:
            reason = f"{len(self.keys)} keys cannot give {self.widening_signers} signatures"
            raise _unusable(reason)
        thumbprints: dict[str, str] = {}
        for name, key in self.keys.items():
            if not SIGNER.fullmatch(name):
                raise _unusable(f"`{name[:63]}` is not a signer's name (a-z, 0-9 and `. _ @ -`)")
            twin = thumbprints.setdefault(key.thumbprint(), name)
            if twin != name:  # one person must not count twice
                raise _unusable(f"`{twin}` and `{name}` have the same key")

    @property
    def signed(self) -> bool:
        """Whether anything must be signed at all."""
        return self._signed

    @classmethod
    def unsigned(cls, environment: str = DEVELOPMENT) -> TrustAnchor:
        """Development: every valid policy is believed, whoever brought it."""
        return cls(environment, {}, 0, _signed=False)

    @classmethod
    def from_jwks(
        cls, text: bytes, *, environment: str, widening_signers: int = WIDENING_SIGNERS
    ) -> TrustAnchor:
        """From a JWK set of public Ed25519 keys, each with its signer's name as ``kid``.

        Raises: ReleaseRefused (``keys_unusable``), also when a key is a private one.
        """
        try:
            told = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _unusable("the file is not JSON") from error
        listed = told.get("keys") if isinstance(told, dict) else None
        if not isinstance(listed, list) or not listed:
            raise _unusable("the file is not a JWK set with at least one key")
        keys: dict[str, OKPKey] = {}
        for jwk in listed:
            name, key = _public(jwk)
            if name in keys:
                raise _unusable(f"`{name}` is listed twice")
            keys[name] = key
        return cls(environment, keys, widening_signers)

    def name_of(self, key: OKPKey) -> str | None:
        """The signer whose key this is."""
        thumbprint = key.thumbprint()
        return next(
            (name for name, own in self.keys.items() if own.thumbprint() == thumbprint), None
        )


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A signer's private key and name."""

    signer: str
    key: OKPKey = field(repr=False)

    @classmethod
    def generate(cls, signer: str) -> SigningKey:
        """A fresh pair. Raises ReleaseRefused for a name that cannot be one."""
        if not SIGNER.fullmatch(signer):
            raise _unusable(f"`{signer[:63]}` is not a signer's name (a-z, 0-9 and `. _ @ -`)")
        return cls(signer, OKPKey.generate_key("Ed25519", auto_kid=False))

    @classmethod
    def from_pem(cls, text: bytes, anchor: TrustAnchor | None = None) -> SigningKey:
        """From a PEM file: PKCS #8, Ed25519, unencrypted.

        The name is the one under which ``anchor`` trusts the key, else the line ``signer: NAME``
        before the key. Raises ReleaseRefused (``key_unusable``, ``unknown_key``).
        """
        blocks = _PEM.findall(text)
        try:
            key = OKPKey.import_key(blocks[0]) if len(blocks) == 1 else None
        except (JoseError, ValueError, TypeError):
            key = None
        if key is None or not key.is_private or key.as_dict(private=False)["crv"] != "Ed25519":
            reason = "the file does not hold exactly one Ed25519 private key"
            raise ReleaseRefused("key_unusable", reason, "make one with `gateway policy keygen`")
        named = _NAMED.search(text)
        name = named[1].decode("ascii") if named else None
        if anchor is not None and anchor.signed:
            name = anchor.name_of(key)
            if name is None:
                reason = "the key is none of those that this environment trusts"
                remedy = "add its public half to the keys file, or sign with another"
                raise ReleaseRefused("unknown_key", reason, remedy)
        if name is None or not SIGNER.fullmatch(name):
            reason = "the key file does not say whose key it is"
            remedy = "write `signer: NAME` on a line before the key"
            raise ReleaseRefused("key_unusable", reason, remedy)
        return cls(name, key)

    def to_pem(self) -> bytes:
        """The file that :meth:`from_pem` reads. Keep it from everybody else."""
        return f"signer: {self.signer}\n".encode("ascii") + self.key.as_pem(private=True)

    def public(self) -> dict[str, Any]:
        """The public JWK for the keys file."""
        return {**self.key.as_dict(private=False), "kid": self.signer, "use": "sig"}


def _public(jwk: object) -> tuple[str, OKPKey]:
    if not isinstance(jwk, dict):
        raise _unusable("a key of the set is no object")
    name = jwk.get("kid")
    if not isinstance(name, str) or jwk.get("kty") != "OKP" or jwk.get("crv") != "Ed25519":
        raise _unusable("a key of the set is not an Ed25519 key with a `kid`")
    if "d" in jwk:
        raise _unusable(f"the key of `{name[:63]}` is a private one; it must be replaced")
    try:
        return name, OKPKey.import_key({key: str(jwk.get(key)) for key in ("kty", "crv", "x")})
    except (JoseError, ValueError, TypeError) as error:
        raise _unusable(f"the key of `{name[:63]}` cannot be read") from error


def _unusable(reason: str) -> ReleaseRefused:
    return ReleaseRefused("keys_unusable", reason, "mend the keys file of `[release]`")
