"""Where a request came from, and the id that follows it.

A client's own ``X-Request-Id`` is never taken over: it would let a caller forge the thread
that operators follow through journal, log and trace.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable

from policies.bindings import TrustedPeer


def new_request_id() -> str:
    """A fresh opaque id, 32 hex digits."""
    return secrets.token_hex(16)


def trusted_peer(client: str, peers: Iterable[TrustedPeer]) -> TrustedPeer | None:
    """The peer whose forwarding headers are believed, by the socket's address only.

    An address that cannot be read is trusted by nobody.
    """
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return None
    for peer in peers:
        if any(address.version == net.version and address in net for net in peer.networks):
            return peer
    return None
