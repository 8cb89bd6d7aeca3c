"""One canonical path, or a refusal: nothing is repaired.

Theory
    A proxy is bypassed when two readers of one target disagree: the router, the policy, the
    log, the upstream. Repairing (folding ``..``, merging slashes, decoding) only moves the
    disagreement. So a path is accepted when there is exactly one way to read it, and then
    the same bytes are routed, decided, logged and sent on.

    Accepted are the characters of RFC 3986 ``pchar`` less ``;`` and less every escape, in
    segments that are not empty, ``.`` or ``..``. One escape exists: ``%23`` (the ``#`` of a
    canonical address), and only where a route says that its last parameter is an address.

    One slash at the end makes another path, never the same one: its last segment is empty, and
    stays so. Only a relayed route that takes the rest of a path takes it.

Source: attack log rows A1-A17.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Final

from gateway.errors import Code, Refusal

_SEGMENT: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,=:@]+")
_PLAIN_PATH: Final = re.compile(r"(?:/[A-Za-z0-9\-_~!$&'()*+,=:@][A-Za-z0-9\-._~!$&'()*+,=:@]*)+/?")
"""Of such a path every segment is canonical; the others are looked at one by one."""
_ADDRESS_SEGMENT: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,=:@]|%23)+")
_LABEL: Final = rb"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST_BYTES_MAX: Final = 262
"""A name of 255 bytes and a port."""
_HOST: Final = re.compile(
    rb"(?:%b(?:\.%b)*|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
    % (_LABEL, _LABEL)
)
_TARGET: Final = re.compile(rb"/[\x21\x22\x24-\x7e]*")


def origin_form(target: bytes) -> bool:
    """Whether a request target is origin-form (RFC 9112 3.2.1) of visible ASCII, without ``#``.

    ``//host`` is refused too: some readers take it for an authority.
    """
    return _TARGET.fullmatch(target) is not None and not target.startswith(b"//")


def valid_host(value: bytes) -> bool:
    """Whether a Host value is a name or address with an optional port, and nothing else."""
    return len(value) <= _HOST_BYTES_MAX and _is_host(value)


@functools.lru_cache(maxsize=1024)
def _is_host(value: bytes) -> bool:
    found = _HOST.fullmatch(value)
    if found is None or int(found["port"] or 0) > 65_535:
        return False
    try:
        return found["six"] is None or bool(IPv6Address(found["six"].decode("ascii")))
    except ValueError:
        return False


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """The segments of a canonical path, still as sent (``%23`` kept), root = none. The last one,
    and no other, is empty where the path ends in a slash (`ends_in_slash`).

    Raises: Refusal ``bad_path`` for anything that two readers could read in two ways.
    """
    try:
        path = raw_path.decode("ascii")
    except UnicodeDecodeError:
        raise Refusal(Code.BAD_PATH, "not ascii") from None
    if path == "/":
        return ()
    if _PLAIN_PATH.fullmatch(path):
        return tuple(path[1:].split("/"))
    if not path.startswith("/"):
        raise Refusal(Code.BAD_PATH, "not origin-form")
    segments = tuple(path[1:].split("/"))
    for segment in segments[:-1] if ends_in_slash(segments) else segments:
        if segment in {"", ".", ".."} or not _ADDRESS_SEGMENT.fullmatch(segment):
            raise Refusal(Code.BAD_PATH, "a segment has no single reading")
        if segment.rstrip(".") == "":
            raise Refusal(Code.BAD_PATH, "a segment of dots only")
    return segments


def ends_in_slash(segments: Sequence[str]) -> bool:
    """Whether a path of these segments ends in a slash; the root is not said to."""
    return len(segments) > 1 and not segments[-1]


def plain(segment: str) -> bool:
    """Whether a segment holds no escape at all, as every segment but an address must."""
    return _SEGMENT.fullmatch(segment) is not None
