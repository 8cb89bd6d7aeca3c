"""A new connection to an address, or a failure that says that nothing was sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from gateway.relay.address import Address
from gateway.relay.upstream import UpstreamUnavailable

Conversation = TypeVar("Conversation", bound=asyncio.Protocol)


def context_of(address: Address) -> ssl.SSLContext | None:
    """What verifies the address's name; None without TLS. Cost: milliseconds and the disk."""
    if not address.tls:
        return None
    return ssl.create_default_context(cafile=address.ca_file or None)


async def dial(
    address: Address,
    conversation: Callable[[], Conversation],
    *,
    context: ssl.SSLContext | None,
    connect_s: float,
) -> Conversation:
    """A conversation over a new connection. Raises: UpstreamUnavailable, unsent."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(connect_s):
            _, made = await loop.create_connection(
                conversation, address.host, address.port, ssl=context
            )
    except TimeoutError:
        raise UpstreamUnavailable("no connection in time", unsent=True) from None
    except OSError as error:
        raise UpstreamUnavailable(f"no connection: {error.strerror}", unsent=True) from error
    return made
