"""What a WebSocket handshake must be before anybody decides about it, and what it asks for.

One reading or none: one Upgrade that says nothing else, version 13, one key of 16 bytes,
subprotocols that are tokens and differ. No body, no other method, no other version of HTTP.

Source: RFC 6455 sections 4.1 and 4.2; attack log rows W1, W3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.errors import Code

LEG: Final = "gateway.leg"
"""ASGI scope extension ``{"leg": leg}``: the caller's leg of a socket that is accepted."""
SUBPROTOCOLS_MAX: Final = 16
_KEY: Final = re.compile(rb"[A-Za-z0-9+/]{21}[AQgw]==")
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")


@dataclass(frozen=True, slots=True)
class Handshake:
    """A well-formed wish for a socket. ``subprotocols`` in the caller's order."""

    key: str
    subprotocols: tuple[str, ...]


def names_socket(upgrades: Sequence[bytes]) -> bool:
    """Whether an Upgrade header names WebSocket, maybe beside other things."""
    return any(b"websocket" in value.lower() for value in upgrades)


def read_handshake(
    method: bytes, version: str, found: Mapping[bytes, Sequence[bytes]]
) -> Handshake | Code:
    """The handshake in these headers (name -> values), or why it is none."""
    if method != b"GET":
        return Code.METHOD_NOT_ALLOWED
    if version != "1.1" or found.get(b"expect"):
        return Code.BAD_REQUEST
    if [value.lower() for value in found.get(b"upgrade", [])] != [b"websocket"]:
        return Code.UPGRADE_UNSUPPORTED
    if list(found.get(b"sec-websocket-version", [])) != [b"13"]:
        return Code.UPGRADE_UNSUPPORTED
    keys = found.get(b"sec-websocket-key", [])
    if len(keys) != 1 or not _KEY.fullmatch(keys[0]):
        return Code.BAD_REQUEST
    offered = found.get(b"sec-websocket-protocol", [])
    names = [name.strip(b" \t") for value in offered for name in value.split(b",")]
    if len(names) > SUBPROTOCOLS_MAX or len(set(names)) != len(names):
        return Code.BAD_REQUEST
    if not all(_TOKEN.fullmatch(name) for name in names):
        return Code.BAD_REQUEST
    return Handshake(keys[0].decode("ascii"), tuple(name.decode("ascii") for name in names))
