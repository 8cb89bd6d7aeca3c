"""One remark on one place of the policy folder, for people and for code scanners."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policies.faults import Place


class Level(StrEnum):
    """How bad: an error is refused at load, a warning is likely a mistake, a note may be meant."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` is stable; ``reason`` and ``remedy`` follow the grammar of ``policies.errors``."""

    place: Place
    level: Level
    code: str
    reason: str
    remedy: str
