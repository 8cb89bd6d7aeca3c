"""Which records are written at all: a share of the allows, and so many a second.

Both are decided without chance or shared state that a test could not repeat: a share by the
request's id, so that every replica and every run agrees, and a rate by the clock it is given.
"""

from __future__ import annotations

import hashlib
from typing import Final

_SPAN: Final = 1 << 64
_NS: Final = 1_000_000_000


def kept(request_id: str, ratio: float) -> bool:
    """Whether the record of this request is among the ``ratio`` that is written.

    Whatever is kept at one ratio is kept at every larger one.
    """
    if ratio >= 1:
        return True
    drawn = hashlib.blake2b(request_id.encode(), digest_size=8, person=b"decision-log").digest()
    return int.from_bytes(drawn, "big") < ratio * _SPAN


class Rate:
    """A token bucket: ``per_second`` on average, and that many at once."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._tokens = float(per_second)
        self._at_ns: int | None = None

    def take(self, now_ns: int) -> bool:
        """Whether one more may pass at ``now_ns``, of a clock that may stand still or fall back."""
        if self._at_ns is not None and now_ns > self._at_ns:
            earned = (now_ns - self._at_ns) * self._per_second / _NS
            self._tokens = min(float(self._per_second), self._tokens + earned)
        self._at_ns = max(now_ns, self._at_ns or now_ns)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
