"""What is signed: which files, by hash, as which generation of which environment.

The payload is canonical JSON (sorted keys, no spaces, ASCII). It is read only in that form:
a second text for the same manifest would be a second thing that signers never saw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from policies.decision import PolicyDigest
from policies.errors import ReleaseRefused
from policies.review.change import Direction

SCHEMA: Final = "audience-gateway/release/1"
ENVIRONMENT: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
GENERATION_MAX: Final = 2**53
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MADE_AT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_REASON_MAX: Final = 2_000
CHANGES: Final[Mapping[Direction, str]] = {
    Direction.NEUTRAL: "none",
    Direction.NARROWING: "narrowing",
    Direction.WIDENING: "widening",
}
"""The words of a manifest (and of the database) for what a change does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One release, as its signers state it.

    ``files`` is path -> SHA-256 (hex). ``change`` is what the first signer's tool found against
    the base, for people only. ``made_at`` is UTC to the second (``2026-11-30T04:35:05Z``).
    """

    environment: str
    generation: int
    digest: PolicyDigest
    files: Mapping[str, str]
    base_generation: int | None
    base_digest: PolicyDigest | None
    change: str
    reason: str
    made_at: str

    def payload(self) -> bytes:
        """The bytes that are signed."""
        told = {
            "schema": SCHEMA,
            "environment": self.environment,
            "generation": self.generation,
            "digest": self.digest,
            "files": dict(self.files),
            "base_generation": self.base_generation,
            "base_digest": self.base_digest,
            "change": self.change,
            "reason": self.reason,
            "made_at": self.made_at,
        }
        return json.dumps(told, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def read(cls, payload: bytes) -> Manifest:
        """The manifest of a payload. Raises ReleaseRefused (``bad_manifest``).

        Refused is everything but the one text that :meth:`payload` gives.
        """
        try:
            told = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise _bad("it is not JSON") from error
        manifest = _checked(told)
        if manifest.payload() != payload:
            raise _bad("it is not in its canonical form")
        return manifest


def now() -> str:
    """The present second as ``made_at`` writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _checked(told: Any) -> Manifest:
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        raise _bad(f"it is not of schema `{SCHEMA}`")
    files = told.get("files")
    if not isinstance(files, dict) or not all(_is(_DIGEST, value) for value in files.values()):
        raise _bad("`files` is not a list of hashes by path")
    texts = all(
        _is(pattern, told.get(key))
        for key, pattern in (
            ("environment", ENVIRONMENT),
            ("digest", _DIGEST),
            ("made_at", _MADE_AT),
        )
    )
    base = (told.get("base_generation"), told.get("base_digest"))
    generation, change, reason = told.get("generation"), told.get("change"), told.get("reason")
    if not texts or not _is_generation(generation) or change not in CHANGES.values():
        raise _bad("environment, digest, time, generation or change has another form")
    if not isinstance(reason, str) or len(reason) > _REASON_MAX:
        raise _bad("`reason` is not a text, or too long")
    if base != (None, None) and not _is_earlier(*base, generation):
        raise _bad("its base is not an earlier release")
    return Manifest(
        environment=told["environment"],
        generation=told["generation"],
        digest=told["digest"],
        files=files,
        base_generation=base[0],
        base_digest=base[1],
        change=told["change"],
        reason=reason,
        made_at=told["made_at"],
    )


def _is_earlier(base_generation: Any, base_digest: Any, generation: Any) -> bool:
    return (
        _is(_DIGEST, base_digest)
        and _is_generation(base_generation)
        and bool(base_generation < generation)
    )


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_generation(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= GENERATION_MAX


def _bad(what: str) -> ReleaseRefused:
    return ReleaseRefused(
        "bad_manifest", f"the manifest cannot be believed: {what}", "approve the folder anew"
    )
