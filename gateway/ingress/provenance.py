"""Where a request came from, and the id that follows it.

A client's own ``X-Request-Id`` is never taken over: it would let a caller forge the thread
that operators follow through journal, log and trace.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
from collections.abc import Collection
from typing import Final

from gateway.errors import Headers
from policies.bindings import TrustedPeer

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9_.-]{8,64}")


def new_request_id() -> str:
    """A fresh opaque id, 32 hex digits."""
    return os.urandom(16).hex()


def request_id_from(headers: Headers, peer: TrustedPeer | None) -> str:
    """The id that a trusted proxy gave this request if it may give one, else a fresh one."""
    told = told_once(headers, peer, "x-request-id")
    return told.decode("ascii") if _REQUEST_ID.fullmatch(told) else new_request_id()


def told_once(headers: Headers, peer: TrustedPeer | None, name: str) -> bytes:
    """What a trusted proxy said under a name that it may use, if it is said once; else empty.

    A second value may be the client's own, which the proxy let pass.
    """
    if peer is None or name not in peer.headers:
        return b""
    wanted = name.encode("ascii")
    found = [value for one, value in headers if one == wanted]
    return found[0] if len(found) == 1 else b""


def forwarded_for(headers: Headers, peer: TrustedPeer | None, client: str) -> str:
    """The chain of addresses up to ``client``, the socket's own.

    A trusted proxy's chain stands before it only when every element is an address: what
    cannot be read is nobody's address.
    """
    if peer is None or "x-forwarded-for" not in peer.headers:
        return client
    told = b",".join(value for name, value in headers if name == b"x-forwarded-for")
    chain = [one.strip() for one in told.decode("latin-1").split(",")] if told else []
    try:
        return ", ".join([*(str(ipaddress.ip_address(one)) for one in chain), client])
    except ValueError:
        return client


@functools.lru_cache(maxsize=1024)
def _address(client: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(client)
    except ValueError:
        return None


def trusted_peer(client: str, peers: Collection[TrustedPeer]) -> TrustedPeer | None:
    """The peer whose forwarding headers are believed, by the socket's address only.

    An address that cannot be read is trusted by nobody.
    """
    address = _address(client) if peers else None
    if address is None:
        return None
    for peer in peers:
        if any(address.version == net.version and address in net for net in peer.networks):
            return peer
    return None
