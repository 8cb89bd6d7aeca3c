"""A request's head as bytes: what is looked up, and the two values that are each request's own.

Theory
    Bytes that are the same are judged the same. A client that is traced sends another
    ``traceparent``, a trusted proxy another ``X-Request-Id`` each time; both are read here by a
    strict form and cut out, a mark and their lengths left in their place. The ordinary way reads
    the same values from the same lines; whatever has another form, or stands there twice, stays in
    the block, which then is like no other. A mark begins with a byte that no block may hold.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MARK: Final = b"\0"
"""Where something was cut out. Bytes that hold one themselves are left to the parser."""
_TRACEPARENT: Final = re.compile(
    rb"\r\n[Tt]raceparent: ([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})(?=\r\n)"
)
_REQUEST_ID: Final = re.compile(rb"\r\n[Xx]-[Rr]equest-[Ii][Dd]: ([A-Za-z0-9_.-]{8,64})(?=\r\n)")
_LINE: Final = re.compile(
    rb"GET (/[A-Za-z0-9\-._~!$&'()*+,=:@/]*)(?:\?([A-Za-z0-9\-._~!$&'()*+,;=:@/?%]+))? HTTP/1\.1"
)
"""Targets with one reading, whoever reads them; all others are left to the parser."""


class Head(NamedTuple):
    """``block`` begins with the line break before its first header. Cut values may be None."""

    line: bytes
    block: bytes
    traceparent: bytes | None
    request_id: bytes | None


def read(data: bytes) -> Head | None:
    """The head, when ``data`` is the whole of one GET without a body, as far as bytes tell."""
    if (
        not data.startswith(b"GET /")
        or data.find(b"\r\n\r\n") != len(data) - 4
        or data.find(MARK) >= 0
    ):
        return None
    at = data.find(b"\r\n")
    line, block = data[:at], data[at:]
    traceparent = request_id = None
    at = block.find(b"raceparent: ")
    if at > 0 and (found := _TRACEPARENT.match(block, at - 3)) is not None:
        traceparent = found[1]
        block = block[: found.start()] + MARK + block[found.end() :]
    at = block.find(b"-request-i")
    if at < 0:
        at = block.find(b"-Request-I")
    if at > 0 and (found := _REQUEST_ID.match(block, at - 3)) is not None:
        request_id = found[1]
        mark = b"%b%d" % (MARK, len(request_id))
        block = block[: found.start()] + mark + block[found.end() :]
    return Head(line, block, traceparent, request_id)


def target_of(line: bytes) -> tuple[bytes, bytes] | None:
    """Path and query of a request line that every reader reads alike; None for another."""
    found = _LINE.fullmatch(line)
    return None if found is None else (found[1], found[2] or b"")
