"""Response heads that were read before: the same bytes are read alike.

Law. Only a head that the parser read, of an answer with a length that left its connection fit for
reuse, is remembered, by all of its bytes but a well-formed ``Date``, which no caller gets. One that
sets a cookie is not: it was meant for one caller.
"""

from __future__ import annotations

import collections
import re
from typing import Final

READINGS_MAX: Final = 512
HEAD_BYTES_MAX: Final = 2_048
"""A longer head is read each time."""
_DATE: Final = re.compile(
    rb"\r\n[Dd]ate: [A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9: ]{13} GMT(?=\r\n)"
)


class Reading:
    """What a head says. ``headers`` may not be changed; ``passed`` is what callers get of it,
    rendered by whoever inspects it, once."""

    __slots__ = ("body_bytes", "headers", "passed", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body_bytes: int) -> None:
        self.status = status
        self.headers = headers
        self.body_bytes = body_bytes
        self.passed: bytes | None = None


class Readings:
    """The readings of one pool, so of one upstream and audience, the oldest in front."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: collections.OrderedDict[bytes, Reading] = collections.OrderedDict()

    def get(self, name: bytes) -> Reading | None:
        """The reading of a head."""
        return self._known.get(name)

    def learn(
        self, name: bytes, status: int, headers: list[tuple[bytes, bytes]], body_bytes: int
    ) -> None:
        """Remember how the head of an answer with a length was read."""
        if len(name) > HEAD_BYTES_MAX or any(one == b"set-cookie" for one, _ in headers):
            return
        self._known[name] = Reading(status, headers, body_bytes)
        if len(self._known) > READINGS_MAX:
            self._known.popitem(last=False)


def name_of(head: bytes) -> bytes:
    """A head without its date."""
    at = head.find(b"ate: ") - 3
    found = _DATE.match(head, at) if at > 0 else None
    return head if found is None else head[:at] + head[found.end() :]
