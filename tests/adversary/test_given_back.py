"""A connection that was given back belongs to whoever took it next.

Found by the random client: a caller that reset its connection in the very moment in which its
answer was whole ended the exchange of a stranger with 502, and took its time limit away.
Provenance: attack log row S15, the same kind: one caller's fate reaches another over a pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.relay.pool import Address, Pool
from gateway.relay.upstream import UpstreamRequest, UpstreamTimeout, UpstreamTimes

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
Hand = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def question(target: bytes) -> UpstreamRequest:
    return UpstreamRequest(
        method="GET", target=target, headers=((b"host", b"a"),), body=None, body_bytes=None
    )


async def behind(hand: Hand, work: Callable[[Pool], Awaitable[None]]) -> None:
    """Run ``work`` with a pool in front of an upstream that does ``hand``."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await hand(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    times = UpstreamTimes(connect_s=2, first_byte_s=0.3, idle_s=5, write_s=2)
    pool = Pool(address=Address(host="127.0.0.1", port=port), times=times)
    try:
        await work(pool)
    finally:
        await pool.aclose()
        await ended.wait()
        server.close()


async def body_of(pool: Pool, target: bytes) -> bytes:
    response = await pool.request(question(target))
    try:
        return b"".join([piece async for piece in response])
    finally:
        await response.aclose()


def test_caller_that_leaves_as_its_answer_ends_cuts_nobody_else() -> None:
    """S15: both turns of the loop in the one order in which it mattered, made by hand."""
    asked: list[bytes] = []
    arrived = asyncio.Event()

    async def hand(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            asked.append(head.split(b" ")[1])
            arrived.set()
            if asked[-1] == b"/second":
                writer.write(ANSWER + b"ok")

    async def work(pool: Pool) -> None:
        first = asyncio.create_task(pool.request(question(b"/first")))
        await arrived.wait()
        (connection,) = pool._open
        second = asyncio.create_task(body_of(pool, b"/second"))  # its turn comes first
        connection.data_received(ANSWER + b"no")  # what the loop does when an answer arrives
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second == b"ok"
        assert asked == [b"/first", b"/second"]

    asyncio.run(behind(hand, work))


def test_reader_of_an_answer_that_ended_takes_no_time_limit_away() -> None:
    """S15: whoever reads the last piece late must not call off the next one's time."""
    asked: list[bytes] = []

    async def hand(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            asked.append(head.split(b" ")[1])
            if asked[-1] == b"/first":
                writer.write(ANSWER + b"n")

    async def work(pool: Pool) -> None:
        response = await pool.request(question(b"/first"))
        pieces = aiter(response)
        assert await anext(pieces) == b"n"
        reading = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)  # it waits
        (connection,) = pool._open
        second = asyncio.create_task(body_of(pool, b"/second"))
        connection.data_received(b"o")
        assert await reading == b"o"
        with pytest.raises(UpstreamTimeout):
            await second
        await response.aclose()

    asyncio.run(behind(hand, work))
