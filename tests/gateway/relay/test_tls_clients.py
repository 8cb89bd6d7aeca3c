"""TLS to an upstream: each client and the WebSocket believe the configured authority only.

Provenance: issue 4 part 3; the pool's own cases stand in `tests/gateway/test_tls.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.relay.address import Address
from gateway.relay.fleet import Fleet
from tests.gateway.relay.asking import question, told
from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import Transport, needs
from tests.gateway.relay.hostile import OK, Peer
from tests.gateway.test_tls import certificate

DECLINED = b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n"


@contextlib.asynccontextmanager
async def listening(presented: Path) -> AsyncIterator[int]:
    """The port of an upstream that presents a certificate and answers what it is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, 0, [])
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await peer.request():
                await peer.say(DECLINED if b"Upgrade:" in request else OK)
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(presented)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_each_client_believes_the_configured_authority_only(
    transport: Transport, tmp_path: Path
) -> None:
    """Twenty exchanges over TLS and one refusal: no ticket is taken for an answer."""
    own, other = certificate(tmp_path), certificate(tmp_path, host="127.0.0.2")

    async def scenario() -> list[object]:
        found: list[object] = []
        async with listening(own) as port:
            for trusted, count in ((own, 20), (other, 1)):
                address = Address(host="127.0.0.1", port=port, tls=True, ca_file=str(trusted))
                client = transport(address=address)
                answers = [await told(client, question()) for _ in range(count)]
                found.append({answer.error or answer.body for answer in answers})
                await client.aclose()
        return found

    assert run(scenario()) == [{b"ok"}, {"UpstreamUnavailable"}]


def test_socket_believes_the_configured_authority_only(tmp_path: Path) -> None:
    """A handshake that is declined has at least arrived; one with a stranger has not."""
    needs("websockets")
    from gateway.relay.upstream import UpstreamError
    from gateway.relay.websocket import Opening, SocketLimits

    own, other = certificate(tmp_path), certificate(tmp_path, host="127.0.0.2")
    opening = Opening(target=b"/", headers=((b"host", b"u"),))

    async def scenario() -> list[str]:
        found = []
        async with listening(own) as port:
            for trusted in (own, other):
                address = Address(host="127.0.0.1", port=port, tls=True, ca_file=str(trusted))
                try:
                    await Fleet(addresses=[address]).socket(opening, SocketLimits())
                except UpstreamError as error:
                    found.append(type(error).__name__)
        return found

    assert run(scenario()) == ["SocketDeclined", "UpstreamUnavailable"]
