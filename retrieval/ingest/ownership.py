"""Whose objects a run may touch: those that its source brought, and nobody else's.

The database enforces the same (``schema/0040_origin.sql``), so that no code path can forget it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from retrieval.ingest.errors import IngestRefused
from retrieval.ingest.report import printable

UNCLAIMED: Final = "unclaimed"
"""The origin of what was stored before sources had names. No source can be called that."""

FOREIGN: Final = "belongs to another source"
"""All that a record about a foreign object is told: neither whose it is nor what it says."""

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Owner:
    """The source for which a run works. ``adopts``: it takes unclaimed objects that it names."""

    origin: str
    adopts: bool


def owner_named(name: str, *, adopts: bool) -> Owner:
    """The owner of this name. Raises ``IngestRefused`` ``source_name``."""
    if not NAME.fullmatch(name) or name == UNCLAIMED:
        raise IngestRefused(
            "source_name",
            f"`{printable(name[:64])}` cannot be the name of a source",
            f"take up to 64 of a-z, 0-9, `.`, `_`, `-`, a letter or digit first, not `{UNCLAIMED}`",
        )
    return Owner(name, adopts)
