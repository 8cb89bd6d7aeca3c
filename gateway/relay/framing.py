"""Where the body of an upstream's answer ends: one reading, or none at all.

A transport asks before it gives a byte of body to anybody. What RFC 9112 allows a recipient
to repair is refused here, because a repair is a second reading: the next hop may repair
differently.

Source: RFC 9112 section 6; attack log rows S1-S5, S15, S17.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.relay.upstream import UpstreamInvalid

_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_BODYLESS: Final = frozenset({204, 304})


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
    lengths: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        if name == b"content-length":
            lengths.append(value.strip(b" \t"))
        elif name == b"transfer-encoding":
            codings.append(value.strip(b" \t").lower())
    if len(lengths) > 1 or any(not _DIGITS.fullmatch(length) for length in lengths):
        raise UpstreamInvalid("not one length")
    if codings and (codings != [b"chunked"] or lengths or version != "1.1"):
        raise UpstreamInvalid("ambiguous framing")
    announced = bool(codings) or any(int(length) for length in lengths)
    bodyless = status in _BODYLESS or method == "HEAD"
    return Framing(
        until_eof=not lengths and not codings and not bodyless,
        doubtful=method == "HEAD" or (bodyless and announced),
    )
