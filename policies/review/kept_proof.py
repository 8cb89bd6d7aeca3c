"""A full enumeration takes minutes; its result is kept by digest, bound to what was proven."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path

from policies.review.verify import fingerprint
from policies.snapshot import Snapshot


def recall(folder: Path, snapshot: Snapshot) -> int | None:
    """The number of questions of a kept proof of this very table by this Casbin, else None."""
    try:
        told = json.loads(_file(folder, snapshot).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(told, dict) or told.get("proven") != _proven(snapshot):
        return None
    asked = told.get("asked")
    return asked if type(asked) is int and asked > 0 else None


def keep(folder: Path, snapshot: Snapshot, asked: int) -> None:
    """Write the proof down, whole or not at all. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = _file(folder, snapshot)
    draft = target.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps({"proven": _proven(snapshot), "asked": asked}), encoding="utf-8")
    draft.replace(target)


def _file(folder: Path, snapshot: Snapshot) -> Path:
    return folder / f"exhaustive-{snapshot.digest}.json"


def _proven(snapshot: Snapshot) -> list[str]:
    return [fingerprint(snapshot), metadata.version("pycasbin")]
