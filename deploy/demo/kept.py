"""What the demo keeps between runs: ports and client secrets, readable by their owner only.

Kept ports keep the issuers' addresses, hence the policy's digest and the opaque ids of the
demo people, so that a second run finds everything as the first one left it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from joserfc.jwk import ECKey

from deploy.demo.people import CLIENTS, Realm


@dataclass(slots=True)
class Kept:
    """``ports`` by a server's name; 0 or absent means any free one."""

    ports: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


def recall(folder: Path) -> Kept:
    """What the last run kept. Secrets of clients that are new are made; the others stay."""
    try:
        found = json.loads((folder / "kept.json").read_bytes())
    except FileNotFoundError:
        found = {}
    known = found.get("secrets", {})
    return Kept(
        ports=dict(found.get("ports", {})),
        secrets={one.name: known.get(one.name) or secrets.token_urlsafe(24) for one in CLIENTS},
    )


def keep(folder: Path, kept: Kept) -> None:
    write_private(folder / "kept.json", {"ports": kept.ports, "secrets": kept.secrets})


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
