"""An answer that we end, over each client that relays: the upstream is cut while it is read.

Provenance: architecture G5; issue 4 part 3 ("behind one interface").
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.holder import SnapshotHolder
from gateway.ingress.limits import Limits
from gateway.relay.pool import Pool
from gateway.relay.upstream import UpstreamError, UpstreamRequest, UpstreamTimes
from gateway.streams.answers import watched
from gateway.streams.register import End, OpenStreams
from policies.snapshot import Snapshot
from tests.gateway.relay.clock import run
from tests.gateway.relay.hostile import Peer, Upstream

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/%b\r\ntransfer-encoding: chunked\r\n\r\n"


def client(name: str) -> Any:
    if name == "pool":
        return Pool
    return pytest.importorskip("gateway.relay.aiohttp_pool").AiohttpPool


@pytest.mark.parametrize("name", ["pool", "aiohttp"])
@pytest.mark.parametrize("kind", [b"event-stream", b"plain"], ids=["events", "body"])
def test_reader_that_waits_is_woken_and_the_upstream_is_cut(
    believing: Snapshot, name: str, kind: bytes
) -> None:
    """Whole events and a proper end; anything else ends in an error, after what had come."""
    make = client(name)

    async def scenario() -> None:
        cut, read = asyncio.Event(), asyncio.Event()
        got: list[bytes] = []
        ends: list[End] = []

        async def script(peer: Peer) -> None:
            await peer.request()
            await peer.say(HEAD % kind, b"d\r\ndata: 1\n\nhalf\r\n")
            await peer.gone()
            cut.set()

        async def again() -> End | None:
            return None

        async with Upstream(script) as upstream:
            pool = make(address=upstream.address, times=UpstreamTimes(), limit=4)
            response = await pool.request(
                UpstreamRequest(method="GET", target=b"/x", headers=((b"host", b"h"),))
            )
            streams = OpenStreams(SnapshotHolder(believing), Limits())
            matched = SimpleNamespace(snapshot=believing)
            granted: Any = SimpleNamespace(
                placed=SimpleNamespace(identified=SimpleNamespace(principal=None, matched=matched))
            )
            answer = watched(response, streams, granted, again=again, ended=ends.append)

            async def reading() -> str:
                try:
                    async for piece in answer:
                        got.append(piece)
                        read.set()
                except UpstreamError:
                    return "cut"
                finally:
                    await answer.aclose()
                return "ended"

            task = asyncio.create_task(reading())
            await read.wait()
            for stream in list(streams._open):
                stream.end(End.NARROWED)
            ended = await task
            await cut.wait()
            await pool.aclose()
            assert not streams._open
            assert ends == [End.NARROWED]
        if kind == b"event-stream":
            assert (b"".join(got), ended) == (b"data: 1\n\n", "ended")
        else:
            assert (b"".join(got), ended) == (b"data: 1\n\nhalf", "cut")

    run(scenario())
