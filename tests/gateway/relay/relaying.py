"""A process that only relays: a listener, the relay, one upstream. Its memory can be measured.

    python -m tests.gateway.relay.relaying UPSTREAM_PORT [pool|aiohttp|nothing]

prints the port that it listens on, and ends when its standard input does. ``nothing`` asks no
upstream: what is left is the cost of the listener.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvloop

from gateway.errors import Headers
from gateway.ingress.abort import ABORT
from gateway.ingress.body import Body, declared_bytes, has_body
from gateway.ingress.limits import Limits
from gateway.relay.address import Address
from gateway.relay.fleet import Client, Fleet
from gateway.relay.headers import of_client, of_upstream
from gateway.relay.stream import Truncated, relay_body
from gateway.relay.upstream import CallerGone, UpstreamError, UpstreamRequest, UpstreamTransport
from gateway.relay.watch import CallerWatch
from gateway.server import bind, server_for

LIMITS = Limits()


class Relaying:
    """The ASGI application: every request goes to the one upstream, and its answer back."""

    def __init__(self, transport: UpstreamTransport) -> None:
        self._transport = transport

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers: Headers = tuple((bytes(n), bytes(v)) for n, v in scope["headers"])
        body = Body(receive, headers, LIMITS)
        sends = has_body(headers)
        request = UpstreamRequest(
            method=scope["method"],
            target=scope["raw_path"],
            headers=((b"host", b"upstream"), *of_client(headers, inspected=False)),
            body=body.pieces() if sends else None,
            body_bytes=declared_bytes(headers) if sends else None,
        )
        try:
            with CallerWatch(receive, body):
                response = await self._transport.request(request)
            kept = of_upstream(response.headers, status=response.status, method=request.method)
            start = {"type": "http.response.start", "status": response.status, "headers": kept}
            await send(start)
            await relay_body(response, receive, send, body)
        except (UpstreamError, Truncated, CallerGone):
            scope["extensions"][ABORT]["call"]()


async def answering(_scope: Any, _receive: Any, send: Any) -> None:
    """The listener alone, with an answer of 1 KiB."""
    headers = [(b"content-length", b"1024")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * 1024, "more_body": False})


async def main(upstream_port: int, client: str) -> None:
    address = Address(host="127.0.0.1", port=upstream_port)
    asks = Client.POOL if client == "nothing" else Client(client)
    transport = Fleet(addresses=[address], connections_max=1_000, client=asks).transport()
    listener = bind("127.0.0.1", 0)
    app = answering if client == "nothing" else Relaying(transport)
    server = server_for(app, LIMITS, graceful_s=1)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.up.wait()
    print(listener.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = server.force_exit = True
    await serving
    await transport.aclose()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "pool"))
