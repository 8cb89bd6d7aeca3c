"""Whether a release may be served: by its own signatures, or by those of what it narrows.

Theory
    Two people open; one may close. A release with fewer signatures than a widening needs is
    accepted only as the end of a chain: each link was compared with the one before it by our
    own code and opens nothing, and the first link stands by itself. So whoever holds one key
    reaches at most what the full number of signers has opened.

    A link must not reach back behind what was accepted last: narrowing a generation of long ago
    would reopen what was closed since.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final

from policies.decision import PolicyDigest
from policies.errors import ReleaseRefused
from policies.files import digest_of
from policies.loader import Parsed
from policies.release.artefact import Artefact, check_contents, direction_of, parsed_of
from policies.release.manifest import Manifest
from policies.release.signing import Verified, verified
from policies.release.trust import TrustAnchor
from policies.review.change import Direction

CHAIN_MAX: Final = 64
Fetch = Callable[[int], Artefact | None]


def accept(
    artefact: Artefact,
    anchor: TrustAnchor,
    *,
    newer_than: int,
    fetch: Fetch,
    accepted: Mapping[int, PolicyDigest] | None = None,
) -> Parsed:
    """The policy of a release that may be served, parsed and not yet proven.

    ``newer_than`` is the highest generation accepted so far (0: none). ``fetch`` gives the
    release of a generation, believed no more than this one. ``accepted`` holds digests of
    generations that this installation accepted before: a chain may end there.

    Raises ReleaseRefused. Cost: parsing, plus one comparison per link of the chain; keep it
    off an event loop.
    """
    known = accepted or {}
    if artefact.generation <= newer_than:
        reason = f"generation {artefact.generation} is not newer than {newer_than}"
        raise ReleaseRefused("older_generation", reason, "release what you want as a new one")
    if not anchor.signed:
        return _unsigned(artefact)
    found, parsed = _read(artefact, anchor)
    chain = [(found.manifest, parsed)]
    while not _stands(found, anchor, known, newest=len(chain) == 1):
        if len(chain) > CHAIN_MAX:
            reason = f"more than {CHAIN_MAX} releases in a row stand on one another"
            raise ReleaseRefused("chain_too_long", reason, _more(found.manifest))
        found, parsed = _read(_base_of(found, anchor, newer_than, fetch), anchor)
        chain.append((found.manifest, parsed))
    for (manifest, new), (_, old) in itertools.pairwise(chain):
        if direction_of(old, new) is Direction.WIDENING:
            reason = (
                f"generation {manifest.generation} opens something and has fewer than"
                f" {anchor.widening_signers} signers"
            )
            raise ReleaseRefused("too_few_signers", reason, _more(manifest))
    return chain[0][1]


def _unsigned(artefact: Artefact) -> Parsed:
    if digest_of(artefact.contents) != artefact.digest:
        reason = "the digest is not that of the files"
        raise ReleaseRefused("hash_mismatch", reason, "stage the folder anew")
    return parsed_of(artefact.contents, artefact.overlaid)


def _read(artefact: Artefact, anchor: TrustAnchor) -> tuple[Verified, Parsed]:
    """Everything about one release but what it stands on."""
    if artefact.jws is None:
        remedy = "sign it with `gateway policy approve`"
        raise ReleaseRefused("unsigned", f"generation {artefact.generation} is unsigned", remedy)
    found = verified(artefact.jws, anchor)
    manifest = found.manifest
    if manifest.environment != anchor.environment:
        reason = f"it was signed for `{manifest.environment}`, this is `{anchor.environment}`"
        raise ReleaseRefused("other_environment", reason, "approve it for this environment")
    if (manifest.generation, manifest.digest) != (artefact.generation, artefact.digest):
        reason = "number or digest is another than was signed"
        raise ReleaseRefused("mislabelled", reason, "approve the folder anew")
    check_contents(manifest, artefact.contents)
    return found, parsed_of(artefact.contents)


def _stands(
    found: Verified, anchor: TrustAnchor, known: Mapping[int, PolicyDigest], *, newest: bool
) -> bool:
    """Whether a release needs no base. Raises ReleaseRefused for a number that was used twice."""
    manifest = found.manifest
    before = known.get(manifest.generation)
    if before is not None and before != manifest.digest:
        reason = f"generation {manifest.generation} was accepted with other files"
        raise ReleaseRefused("generation_reused", reason, "release it under a new number")
    return len(found.signers) >= anchor.widening_signers or (before is not None and not newest)


def _base_of(found: Verified, anchor: TrustAnchor, newer_than: int, fetch: Fetch) -> Artefact:
    manifest = found.manifest
    if manifest.base_generation is None:
        reason = f"a first release needs {anchor.widening_signers} signers"
        raise ReleaseRefused("too_few_signers", reason, _more(manifest))
    if manifest.base_generation < newer_than < manifest.generation:
        reason = f"it narrows generation {manifest.base_generation}, but {newer_than} was accepted"
        raise ReleaseRefused("base_superseded", reason, "approve it against the active release")
    base = fetch(manifest.base_generation)
    if base is None:
        reason = f"generation {manifest.base_generation}, on which it stands, is not here"
        raise ReleaseRefused("base_missing", reason, _more(manifest))
    if (base.generation, base.digest) != (manifest.base_generation, manifest.base_digest):
        reason = f"generation {manifest.base_generation} is not what it was compared with"
        raise ReleaseRefused("base_mismatch", reason, "approve it against the active release")
    return base


def _more(manifest: Manifest) -> str:
    return f"let another signer approve generation {manifest.generation} or a later one"
