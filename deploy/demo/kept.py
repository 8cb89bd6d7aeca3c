"""What the demo keeps between runs: ports and client secrets, readable by their owner only.

Kept ports keep the issuers' addresses, hence the policy's digest and the opaque ids of the
demo people, so that a second run finds everything as the first one left it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from joserfc.jwk import ECKey

from deploy.demo.people import CLIENTS, Realm
from retrieval.embedded import EmbeddedError


@dataclass(slots=True)
class Kept:
    """``ports`` of the first start by a server's name; absent means any free one. ``instead`` holds
    what servers had at the last start where theirs was taken."""

    ports: dict[str, int] = field(default_factory=dict)
    instead: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The folder's files for this process only: a second demo must not write them anew.

    Raises: EmbeddedError ``state_held``.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = f"another demo runs in `{folder}`"
            remedy = "use that one, stop it, or set GATEWAY_STATE to another folder"
            raise EmbeddedError("state_held", reason, remedy) from error
        yield
    finally:
        os.close(descriptor)


def recall(folder: Path) -> Kept:
    """What the last run kept. Secrets of clients that are new are made; the others stay."""
    try:
        found = json.loads((folder / "kept.json").read_bytes())
    except FileNotFoundError:
        found = {}
    known = found.get("secrets", {})
    return Kept(
        ports=dict(found.get("ports", {})),
        instead=dict(found.get("instead", {})),
        secrets={one.name: known.get(one.name) or secrets.token_urlsafe(24) for one in CLIENTS},
    )


def keep(folder: Path, kept: Kept) -> None:
    write_private(folder / "kept.json", asdict(kept))


def fresh_keys() -> Mapping[Realm, ECKey]:
    """A signing key per realm, for this run: nothing that an earlier run signed is good."""
    return {realm: ECKey.generate_key("P-256", auto_kid=False) for realm in Realm}


def write_private(path: Path, document: object) -> None:
    """Write JSON whole or not at all, mode 0600."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.new")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(document, file, indent=1, sort_keys=True)
    half.replace(path)
