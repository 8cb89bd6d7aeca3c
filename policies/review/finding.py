"""One remark on one place of the policy folder, for people and for code scanners."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policies.errors import Fault
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

    def __str__(self) -> str:
        at = f"{self.place.file}:{self.place.line}:{self.place.column}"
        return f"{at}: {self.level}: {self.code}: {self.reason}; {self.remedy}"


def of_fault(fault: Fault) -> Finding:
    """A loader's fault as a finding."""
    place = Place(fault.file, fault.line, fault.column)
    return Finding(place, Level.ERROR, fault.code, fault.reason, fault.remedy)
