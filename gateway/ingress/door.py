"""How many connections one address may hold, and who was sent away by the protocol itself.

Laws
    * An address has a share of the connections of a listener: whoever opens more is refused before
      a byte is read, and everybody else goes on. A whole /64 of IPv6 is one address, because it is
      given to one customer.
    * A trusted proxy carries many callers and has no share of its own; whom it lets in is for it
      to say.
    * Whoever is refused before there is a request is counted and told all the same.

Source: attack log rows D1-D4; RFC 6177 (what one site is given).
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable
from typing import Final

from gateway.errors import Code
from gateway.ingress.limits import Limits

Told = Callable[[Code, str, str], None]
"""Hears of a refusal: its code, the peer's address, the request id that the refusal names."""
_SITE: Final = 64


def _by_nobody(_client: str) -> bool:
    return False


def _to_nobody(_code: Code, _client: str, _request_id: str) -> None:
    pass


class Door:
    """The connections of one listener by address. For the loop's thread only."""

    __slots__ = ("_here", "_limits", "_told", "_trusted", "refused")

    def __init__(
        self,
        limits: Limits,
        *,
        trusted: Callable[[str], bool] = _by_nobody,
        told: Told = _to_nobody,
    ) -> None:
        self._limits = limits
        self._trusted = trusted
        self._told = told
        self._here: dict[str, int] = {}
        self.refused: dict[tuple[str, ...], int] = {}
        """Refusals of the protocol by their code."""

    def enter(self, client: str) -> bool:
        """Whether a connection from this address may stay; then it counts until it leaves.

        Cost: one look-up, trust is asked for only when the share is used up.
        """
        site = site_of(client)
        here = self._here.get(site, 0)
        if here >= self._limits.connections_per_peer and not self._trusted(client):
            return False
        self._here[site] = here + 1
        return True

    def leave(self, client: str) -> None:
        """Note that a connection that entered is over."""
        site = site_of(client)
        here = self._here.get(site, 0) - 1
        if here > 0:
            self._here[site] = here
        else:
            self._here.pop(site, None)

    @property
    def inside(self) -> int:
        """Connections of the listener, those of sockets included."""
        return sum(list(self._here.values()))

    def send_away(self, code: Code, client: str, request_id: str) -> None:
        """Count a refusal that no application will hear of, and tell of it."""
        self.refused[code,] = self.refused.get((code,), 0) + 1
        self._told(code, client, request_id)


@functools.lru_cache(maxsize=4_096)
def site_of(client: str) -> str:
    """Who shares one allowance of connections: an IPv4 address, or a /64 of IPv6."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address.packed[: _SITE // 8] + bytes(8), _SITE)))
