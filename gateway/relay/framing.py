"""Where the body of an upstream's answer ends: one reading, or none at all.

A transport asks before it gives a byte of body to anybody. What RFC 9112 allows a recipient
to repair is refused here, because a repair is a second reading: the next hop may repair
differently.

Source: RFC 9112 section 6, RFC 9110 section 15 (statuses); attack log rows S1-S5, S15, S17.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.relay.upstream import UpstreamInvalid

_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_BODYLESS: Final = frozenset({204, 304})
_STATUS_MAX: Final = 599


@dataclass(frozen=True, slots=True)
class Framing:
    """How the body ends.

    ``until_eof``: with the connection. ``doubtful``: the header block announces a body that
    may not be there, and an upstream that sends one anyway would answer the next question
    with it: such a connection is not kept.
    """

    until_eof: bool
    doubtful: bool


def framing_of(
    headers: Iterable[tuple[bytes, bytes]], *, status: int, method: str, version: str
) -> Framing:
    """The one reading of a finished header block (names lower-case). Raises: UpstreamInvalid."""
    if status > _STATUS_MAX:
        raise UpstreamInvalid("a status of no class")
    length: bytes | None = None
    chunked = False
    for name, value in headers:
        if name == b"content-length":
            value = value.strip(b" \t")
            if length is not None or not _DIGITS.fullmatch(value):
                raise UpstreamInvalid("not one length")
            length = value
        elif name == b"transfer-encoding":
            if chunked or value.strip(b" \t").lower() != b"chunked" or version != "1.1":
                raise UpstreamInvalid("not one coding")
            chunked = True
    if chunked and length is not None:
        raise UpstreamInvalid("a length and chunks")
    bodyless = method == "HEAD" or status in _BODYLESS
    if not bodyless:
        return _UNTIL_EOF if length is None and not chunked else _DELIMITED
    announced = chunked or (length is not None and int(length) > 0)
    return _DOUBTFUL if announced or method == "HEAD" else _DELIMITED


_DELIMITED: Final = Framing(until_eof=False, doubtful=False)
_UNTIL_EOF: Final = Framing(until_eof=True, doubtful=False)
_DOUBTFUL: Final = Framing(until_eof=False, doubtful=True)
