"""How a socket ends: the codes of RFC 6455 section 7.4 that we give or tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
BROKEN: Final = 1002
"""Bytes that are no frame."""
NO_CODE: Final = 1005
"""Never sent: the close had no code."""
LOST: Final = 1006
"""Never sent: there was no close, or none that may be believed."""
NOT_TEXT: Final = 1007
NOT_ALLOWED: Final = 1008
"""Expired, revoked, or the policy became narrower."""
TOO_BIG: Final = 1009
FAILED: Final = 1011
RESTART: Final = 1012


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of a socket: code and reason."""

    code: int
    reason: str = ""
