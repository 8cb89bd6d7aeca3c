"""Small documents from configured addresses: an issuer's keys, nothing a caller names."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from gateway.relay.pool import Address, Pool
from gateway.relay.upstream import UpstreamInvalid, UpstreamRequest, UpstreamTimes

DOCUMENT_BYTES_MAX: Final = 512 * 1024
_TIMES: Final = UpstreamTimes(connect_s=3.0, first_byte_s=5.0, idle_s=5.0, write_s=5.0)


def address_of(url: str) -> tuple[Address, bytes]:
    """Where an http(s) address points, and the target to ask for.

    Raises: UpstreamInvalid for another scheme, or for http to anything but loopback.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
        raise UpstreamInvalid("not an http address")
    if parts.scheme == "http" and not _loopback(host):
        raise UpstreamInvalid("unencrypted and not loopback")
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(host=host, port=parts.port or (443 if tls else 80), tls=tls), target.encode()


async def fetch(url: str) -> bytes:
    """The body of a 200 answer, of at most ``DOCUMENT_BYTES_MAX`` bytes; redirects are refused.

    Raises: UpstreamError.
    """
    address, target = address_of(url)
    pool = Pool(address=address, times=_TIMES, limit=1)
    headers = (
        (b"host", address.authority),
        (b"accept", b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"connection", b"close"),
    )
    try:
        response = await pool.request(UpstreamRequest(method="GET", target=target, headers=headers))
        if response.status != 200:
            raise UpstreamInvalid(f"status {response.status}")
        body = bytearray()
        async for piece in response:
            body += piece
            if len(body) > DOCUMENT_BYTES_MAX:
                raise UpstreamInvalid("the document is too large")
        return bytes(body)
    finally:
        await pool.aclose()


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
