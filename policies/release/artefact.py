"""A release as it travels: number, digest, signatures and the covered files themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies import soundness
from policies.decision import PolicyDigest
from policies.errors import InvalidPolicy, ReleaseRefused
from policies.faults import Faults
from policies.files import PolicyFiles, digest_of, read
from policies.loader import Parsed, parse_files
from policies.release.manifest import Manifest
from policies.review.change import Direction
from policies.review.diff import reach
from policies.review.reading import Reading, of_parsed


@dataclass(frozen=True, slots=True)
class Artefact:
    """One release, nothing of it believed. ``jws`` is None for an unsigned one.

    ``contents`` is path relative to the policy folder (``rules/units.csv``) -> bytes.
    ``overlaid`` names those that came from an overlay; only an unsigned release may say so.
    """

    generation: int
    digest: PolicyDigest
    jws: Mapping[str, Any] | None
    contents: Mapping[str, bytes]
    overlaid: frozenset[str] = field(default=frozenset())


def contents_of(folder: Path, overlay: Path | None = None) -> PolicyFiles:
    """The covered files of a folder, as they are served. Raises InvalidPolicy."""
    faults = Faults()
    found = read(folder, overlay, faults)
    faults.check()
    return found


def files_of(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Path -> SHA-256 (hex), as a manifest lists them."""
    return {path: hashlib.sha256(contents[path]).hexdigest() for path in sorted(contents)}


def check_contents(manifest: Manifest, contents: Mapping[str, bytes]) -> None:
    """Return when the files are those of the manifest, all of them and no other.

    Raises ReleaseRefused: ``missing_file``, ``extra_file``, ``hash_mismatch``.
    """
    remedy = "restore the files that were signed, or approve the folder anew"
    for path in sorted(manifest.files.keys() - contents.keys()):
        raise ReleaseRefused("missing_file", f"`{path}` was signed and is not here", remedy)
    for path in sorted(contents.keys() - manifest.files.keys()):
        raise ReleaseRefused("extra_file", f"`{path}` is here and was not signed", remedy)
    for path, found in files_of(contents).items():
        if found != manifest.files[path]:
            raise ReleaseRefused("hash_mismatch", f"`{path}` is not what was signed", remedy)
    if digest_of(contents) != manifest.digest:
        raise ReleaseRefused("hash_mismatch", "the digest is not that of the files", remedy)


def parsed_of(contents: Mapping[str, bytes], overlaid: frozenset[str] = frozenset()) -> Parsed:
    """The typed policy of covered files. Raises ReleaseRefused (``policy_invalid``)."""
    try:
        return parse_files(PolicyFiles(dict(contents), digest_of(contents), overlaid), Faults())
    except InvalidPolicy as error:
        raise _invalid(error) from error


def direction_of(old: Parsed, new: Parsed) -> Direction:
    """Which way a change goes, by our own comparison of both compiled policies.

    Raises ReleaseRefused (``policy_invalid``) for one that says what no policy may, such as a
    consent that closes. Cost: a fraction of a second for a few edited rows.
    """
    return reach(_sound(old), _sound(new)).direction


def _sound(parsed: Parsed) -> Reading:
    reading = of_parsed(parsed)
    try:
        soundness.check(parsed, reading.snapshot.table)
    except InvalidPolicy as error:
        raise _invalid(error) from error
    return reading


def _invalid(error: InvalidPolicy) -> ReleaseRefused:
    reason = f"its policy has {len(error.faults)} faults, first: {error.faults[0]}"
    remedy = "run `gateway policy verify`; a policy that cannot be proven is not served"
    return ReleaseRefused("policy_invalid", reason, remedy)
