"""Errors of the policy house: every one names a place, a reason and a remedy.

Grammar of a message: lower case, no full stop, the offending value in backticks,
position as ``file:line:column``. A policy file is refused with all of its errors
at once, in a stable order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_CAUSES: Final = frozenset(
    {
        "bad_yaml",
        "byte_order_mark",
        "carriage_returns",
        "control_character",
        "empty_file",
        "file_too_large",
        "missing_file",
        "no_rules",
        "not_utf8",
        "unreadable",
    }
)
"""A file that cannot be read makes faults in others, which look for its words: told first."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong with one place of the policy folder.

    ``file`` is relative to the policy folder; ``line`` and ``column`` start at 1
    (0 = the whole file). ``code`` is stable and may be matched by tools.
    """

    file: str
    line: int
    column: int
    code: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.code}: {self.reason}; {self.remedy}"


class PolicyError(Exception):
    """Base of everything this house raises. A caller that sees one must deny."""


class InvalidPolicy(PolicyError):
    """The folder cannot become a snapshot; ``faults`` lists every reason, files that cannot be
    read first, then by place."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(set(faults), key=lambda one: (one.code not in _CAUSES, one)))
        super().__init__("\n".join(map(str, self.faults)))


class UnknownProfile(PolicyError):
    """A grant was asked for a profile that the vocabulary does not have."""


class IncongruentPolicy(PolicyError):
    """A compiled form disagrees with Casbin: the snapshot must not be served."""


class UnknownClass(PolicyError):
    """A class id was asked for that the lock never gave."""


class UnorderedFacet(PolicyError):
    """Two values were compared on a facet for which no stricter one is declared."""


class WrongCasbin(PolicyError):
    """Another distribution owns the module ``casbin``: no verdict of it can be trusted."""


class ReleaseRefused(PolicyError):
    """A release must not be served: one stable ``code``, a reason and a remedy."""

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        self.code = code
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{code}: {reason}; {remedy}")
