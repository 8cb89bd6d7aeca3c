"""Which ports the demo's servers have: those of its first start, else others, and never in silence.

The identity provider's port stands in the issuers' addresses: with another one the policy's digest
and the opaque ids of the demo people are others, and what an earlier start noted under them (a
consent, a decision log) is about nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from socket import socket
from typing import Final

from deploy.demo.kept import Kept
from deploy.demo.servers import listen, port_of

IDENTITY: Final = "identity"
_CHANGES: Final = (
    " The policy's digest and the people's opaque ids are others than at the last start: consents"
    " that were given then hold for nobody."
)


def listening(kept: Kept, name: str, tell: Callable[[str], object]) -> socket:
    """A listening socket for this server, noted in ``kept``.

    On the port that it had first; else on the one that it had instead at the last start; else on
    any free one. ``tell`` is told when that is not the port of the first start, or is it again.
    """
    first, last = kept.ports.get(name, 0), kept.instead.pop(name, 0)
    found = _first_free(first, last)
    port = port_of(found)
    also = _CHANGES if name == IDENTITY and port != (last or first) else ""
    if not first:
        kept.ports[name] = port
    elif port != first:
        kept.instead[name] = port
        tell(
            f"port {first} of `{name}` is taken by another program: {port} until it is free.{also}"
        )
    elif last:
        tell(f"port {first} of `{name}` is free again.{also}")
    return found


def _first_free(*wanted: int) -> socket:
    """On the first of these ports that is free, else on any."""
    for port in filter(None, wanted):
        found = listen(port)
        if port_of(found) == port:
            return found
        found.close()
    return listen(0)
