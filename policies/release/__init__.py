"""A release: one revision of the policy, numbered, signed, and able to travel.

Laws
    * What is served is what was signed: a manifest names every covered file by its hash, and a
      file more, a file less or one changed byte is refused.
    * A release with the full number of trusted signatures stands by itself. One with fewer, but
      at least one, stands on its base: the base is accepted by the same rule, and our own
      comparison of both policies must find nothing that opens. What the manifest claims about
      its change is told to people and believed by nobody.
    * Generations only grow. An older one, one of another environment, an unknown or doubled
      signer, another algorithm: each is refused with its own code.
    * There is one text for one release: the manifest and the headers are canonical JSON, every
      base64url text is canonical.

This room holds public keys and files; where they come from and who serves them it does not know.
Source: RFC 7515 (general JSON serialisation), RFC 8032, RFC 9864.
"""

from policies.errors import ReleaseRefused
from policies.release.accepting import accept
from policies.release.artefact import Artefact, contents_of, direction_of
from policies.release.manifest import Manifest
from policies.release.signing import cosign, manifest_of, sign, signers_of, verified
from policies.release.trust import SigningKey, TrustAnchor

__all__ = [
    "Artefact",
    "Manifest",
    "ReleaseRefused",
    "SigningKey",
    "TrustAnchor",
    "accept",
    "contents_of",
    "cosign",
    "direction_of",
    "manifest_of",
    "sign",
    "signers_of",
    "verified",
]
