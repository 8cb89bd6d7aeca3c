"""The demo's own servers."""

from __future__ import annotations

import httpx
from starlette.applications import Starlette

from deploy.demo.servers import Servers, listen


def test_a_server_keeps_connections_longer_than_the_clients_that_ask_it() -> None:
    """Else a request meets the end of its connection, as one of the tour did after five seconds."""
    with Servers() as servers:
        servers.serve(Starlette(), listen(0))
        ((server, _),) = servers._running
        kept_s = httpx.Limits().keepalive_expiry
        assert kept_s is not None
        assert server.config.timeout_keep_alive > kept_s
