"""An answer that is given up: who ended it."""

from __future__ import annotations

import asyncio

from gateway.ingress.abort import cut


async def _server_side(leave: bool) -> bool:
    """What `cut` says of a connection whose caller has or has not left."""
    taken: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    lost = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.set_result(writer)
        await reader.read()
        lost.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        _, caller = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer = await taken
        if leave:
            caller.close()
            await lost.wait()
            writer.close()  # as the protocol of a listener does at the end of its input
        there = cut(writer.transport)  # type: ignore[arg-type]  # a socket's transport writes
        caller.close()
        return there


def test_reset_tells_a_caller_that_was_there_from_one_that_had_left() -> None:
    """The record says who ended an answer, also when both sides end it in one moment."""
    assert asyncio.run(_server_side(leave=False)) is True
    assert asyncio.run(_server_side(leave=True)) is False
