"""Whether a finished header block has one reading, and which.

Source: attack log section 4 and rows B2, S1-S14.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.errors import Code
from gateway.ingress.handshake import Handshake, names_socket, read_handshake
from gateway.ingress.normalise import origin_form, valid_host

_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_NAMES: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]*")
_VALUES: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})

Found = Mapping[bytes, list[bytes]]


def judged(
    method: bytes,
    version: str,
    target: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    *,
    upgrades: bool,
    sockets: bool,
) -> Code | Handshake | None:
    """What is wrong with a header block; the handshake that it is; None for any other request.

    Names are lower-case. ``upgrades``: the parser sees an upgrade; ``sockets``: one to a
    WebSocket may be asked for here.
    """
    if version not in {"1.0", "1.1"}:
        return Code.VERSION_UNSUPPORTED
    if method not in _METHODS:
        return Code.METHOD_NOT_ALLOWED
    if not origin_form(target):
        return Code.BAD_PATH
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in found:
            found[name].append(value.strip(b" \t"))
        else:
            found[name] = [value.strip(b" \t")]
    # all at once: what no single one may hold, all together may not
    if (
        b"" in found
        or not _NAMES.fullmatch(b"".join(found))
        or not _VALUES.fullmatch(b"".join([value for _, value in headers]))
    ):
        return Code.BAD_REQUEST
    hosts = found.get(b"host", [])
    if len(hosts) != 1 or not valid_host(hosts[0]):
        return Code.BAD_HOST
    wrong = _framing(found, version, upgrades=upgrades)
    if wrong is not None or not upgrades or not names_socket(found.get(b"upgrade", [])):
        return wrong
    return read_handshake(method, version, found) if sockets else Code.UPGRADE_UNSUPPORTED


def _framing(found: Found, version: str, *, upgrades: bool) -> Code | None:
    lengths = found.get(b"content-length", [])
    codings = found.get(b"transfer-encoding", [])
    if len(lengths) > 1 or not all(_DIGITS.fullmatch(length) for length in lengths):
        return Code.BAD_FRAMING
    if codings and (codings != [b"chunked"] or lengths or version == "1.0"):
        return Code.BAD_FRAMING
    if any(value.lower() != b"100-continue" for value in found.get(b"expect", [])):
        return Code.EXPECTATION_FAILED
    return Code.BAD_FRAMING if upgrades and (codings or lengths) else None
