"""Releases of the default policy and of edits of it, signed by whom a test wants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from policies.decision import PolicyDigest
from policies.files import digest_of
from policies.release import Artefact, Manifest, SigningKey, TrustAnchor, contents_of, sign
from policies.release.artefact import files_of
from policies.snapshot import DEFAULT_FOLDER

Contents = Mapping[str, bytes]

ANN, BOB, EVE = (SigningKey.generate(name) for name in ("ann", "bob", "eve"))
DEFAULT: Contents = contents_of(DEFAULT_FOLDER).contents
ISSUERS = "rules/issuers.yaml"
UNITS = "rules/units.csv"
WIDER = (
    b"p, U-CUS-9, customer, partner, published, published, low, enacted, faq, none|granted, allow\n"
)


def jwks(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.public() for key in keys]}).encode()


ANCHOR = TrustAnchor.from_jwks(jwks(ANN, BOB), environment="production")


def edited(contents: Contents, file: str, old: bytes, new: bytes) -> Contents:
    """With the first ``old`` replaced; it must be there."""
    assert old in contents[file]
    return {**contents, file: contents[file].replace(old, new, 1)}


def narrower(contents: Contents = DEFAULT) -> Contents:
    """Customers lose frequently asked questions."""
    return edited(contents, UNITS, b"policy|sop|runbook|faq|guide", b"policy|sop|runbook|guide")


def on_loopback(contents: Contents = DEFAULT) -> Contents:
    """The colleagues' issuer is a development provider's: only an overlay may say so."""
    there, here = b"https://login.staff.example", b"http://127.0.0.1:8400"
    assert there in contents[ISSUERS]
    return {**contents, ISSUERS: contents[ISSUERS].replace(there, here)}


def noted(contents: Contents, note: str) -> Contents:
    """With a comment more, which changes the digest and nothing else."""
    return {**contents, UNITS: contents[UNITS] + f"# {note}\n".encode()}


def wider(contents: Contents = DEFAULT) -> Contents:
    """Customers read what is the partners'."""
    return {**contents, UNITS: contents[UNITS] + WIDER}


def manifest(
    contents: Contents, generation: int, base: Artefact | None = None, **changes: Any
) -> Manifest:
    told: dict[str, Any] = {
        "environment": "production",
        "generation": generation,
        "digest": digest_of(contents),
        "files": files_of(contents),
        "base_generation": base.generation if base else None,
        "base_digest": base.digest if base else None,
        "change": "none",
        "reason": "a test",
        "made_at": "2026-11-30T04:35:05Z",
    }
    return Manifest(**(told | changes))


def release(
    contents: Contents,
    generation: int,
    *,
    by: Sequence[SigningKey] = (ANN, BOB),
    base: Artefact | None = None,
    **changes: Any,
) -> Artefact:
    """A release as its signers would hand it over; ``changes`` are to the manifest."""
    told = manifest(contents, generation, base, **changes)
    return Artefact(generation, PolicyDigest(digest_of(contents)), sign(told, by), contents)


class Shelf:
    """Releases by generation, as a database gives them."""

    def __init__(self, *releases: Artefact) -> None:
        self._releases = {one.generation: one for one in releases}

    def __call__(self, generation: int) -> Artefact | None:
        return self._releases.get(generation)
