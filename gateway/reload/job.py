"""What is sent to the process that builds, and what it says of a build."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.decision import PolicyDigest
from policies.release import Artefact, ReleaseRefused, TrustAnchor


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust anchor that can travel: keys as a JWK set, None where nothing needs a signature."""

    environment: str
    widening_signers: int
    jwks: bytes | None

    @classmethod
    def of(cls, anchor: TrustAnchor) -> Trust:
        if not anchor.signed:
            return cls(anchor.environment, 0, None)
        keys = [
            {**key.as_dict(private=False), "kid": signer} for signer, key in anchor.keys.items()
        ]
        jwks = json.dumps({"keys": keys}).encode()
        return cls(anchor.environment, anchor.widening_signers, jwks)

    def anchor(self) -> TrustAnchor:
        """Raises ReleaseRefused for keys that cannot be read."""
        if self.jwks is None:
            return TrustAnchor.unsigned(self.environment)
        return TrustAnchor.from_jwks(
            self.jwks, environment=self.environment, widening_signers=self.widening_signers
        )


@dataclass(frozen=True, slots=True)
class RawRelease:
    """A release as the database holds it: JSON that is read where it holds nobody up.

    ``files`` is an object of path -> text; ``jws`` is None for an unsigned release; ``overlaid``
    names the files that came from an overlay.
    """

    generation: int
    digest: str
    jws: bytes | None
    files: bytes
    overlaid: Sequence[str] = ()

    def artefact(self) -> Artefact:
        """The same with its JSON read. Raises ReleaseRefused (``unreadable``)."""
        try:
            jws = None if self.jws is None else json.loads(self.jws)
            contents = {path: text.encode() for path, text in json.loads(self.files).items()}
        except (ValueError, AttributeError, RecursionError) as error:
            reason = f"generation {self.generation} is not stored as a release is"
            raise ReleaseRefused("unreadable", reason, "release the folder anew") from error
        digest = PolicyDigest(self.digest)
        return Artefact(self.generation, digest, jws, contents, frozenset(self.overlaid))


@dataclass(frozen=True, slots=True)
class Job:
    """A release to be accepted and built; ``bases`` are the releases that it may stand on.

    ``newer_than`` is the highest generation that this installation accepted before, ``accepted``
    the digests of such generations. A candidate, which never decides, is built with a trust
    that asks for no signature.
    """

    release: RawRelease
    trust: Trust
    newer_than: int
    bases: tuple[RawRelease, ...] = ()
    accepted: Mapping[int, PolicyDigest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """How long a build took, in seconds, what Casbin was asked, and the processor time of all."""

    accept_s: float
    compile_s: float
    prove_s: float
    questions: int
    cpu_s: float


class BuildRefused(Exception):
    """The release is not taken: a stable ``code``, and a reason for the log."""

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{code}: {reason}")
