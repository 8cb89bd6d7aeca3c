"""Issuers of the tests: real keys, and tokens with any one thing wrong."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joserfc.jwk import ECKey, RSAKey

AUDIENCE = "https://gateway.example"
URLS = {
    "idp:staff": "https://login.staff.example/",
    "idp:partners": "https://login.partners.example/",
    "idp:customers": "https://login.customers.example/",
    "idp:agents": "https://login.agents.example/",
    "idp:services": "https://login.services.example/",
}
_WORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "employee": ("idp:staff", {"groups": ["staff-all"], "tenants": ["acme"]}),
    "partner": ("idp:partners", {"groups": ["partners"], "tenant": "acme"}),
    "customer": ("idp:customers", {"groups": ["customers"], "tenant": "acme"}),
    "agent": (
        "idp:agents",
        {"groups": ["agents"], "roles": ["assistant"], "tasks": ["answer"], "tenants": ["acme"]},
    ),
}


def encode(part: bytes | dict[str, Any]) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass
class Issuers:
    """One EC key per issuer, plus an RSA key for the staff's."""

    keys: dict[str, ECKey] = field(
        default_factory=lambda: {alias: ECKey.generate_key("P-256") for alias in URLS}
    )
    rsa: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048))

    def jwks(self, alias: str) -> dict[str, Any]:
        keys = [{**self.keys[alias].as_dict(private=False), "kid": "ec", "use": "sig"}]
        if alias == "idp:staff":
            keys.append({**self.rsa.as_dict(private=False), "kid": "rsa", "use": "sig"})
        return {"keys": keys}

    def claims(self, alias: str, **changes: Any) -> dict[str, Any]:
        """Sound claims of an issuer; a change to None takes the claim away."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": URLS[alias],
            "aud": AUDIENCE,
            "sub": "u-1",
            "iat": now - 5,
            "exp": now + 300,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, audience: str, **changes: Any) -> str:
        """A sound token of someone of this audience, claims changed as asked."""
        alias, words = _WORDS[audience]
        return self.sign(alias, self.claims(alias, **{**words, **changes}))

    def service(self, sub: str) -> str:
        """A sound token of an upstream's own."""
        return self.sign("idp:services", self.claims("idp:services", sub=sub))

    def sign(
        self,
        alias: str,
        claims: dict[str, Any] | bytes,
        header: dict[str, Any] | bytes | None = None,
        key: ECKey | RSAKey | None = None,
    ) -> str:
        """A token with this very header and payload, signed as its ``alg`` says."""
        key = key or self.keys[alias]
        algorithm = "RS256" if isinstance(key, RSAKey) else "ES256"
        default = {"alg": algorithm, "kid": "rsa" if isinstance(key, RSAKey) else "ec"}
        if isinstance(header, dict):
            header = {**default, **header}
        text = f"{encode(header or default)}.{encode(claims)}"
        return f"{text}.{encode(signature(text.encode(), key))}"

    def write(self, folder: Path) -> None:
        """The policy overlay that believes these issuers."""
        rules = folder / "rules"
        rules.mkdir(parents=True)
        source = Path(__file__).parents[2] / "policies" / "rules" / "issuers.yaml"
        text = source.read_text()
        for alias, url in URLS.items():
            name = alias.removeprefix("idp:") + ".jwks.json"
            text = text.replace(f'{{jwks_uri: "{url}jwks"}}', f"{{jwks_file: {name}}}")
            (rules / name).write_text(json.dumps(self.jwks(alias)))
        (rules / "issuers.yaml").write_text(text)


def signature(text: bytes, key: ECKey | RSAKey) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    if isinstance(key, RSAKey):
        assert key.private_key is not None
        return key.private_key.sign(text, PKCS1v15(), SHA256())
    assert key.private_key is not None
    r, s = decode_dss_signature(key.private_key.sign(text, ECDSA(SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")
