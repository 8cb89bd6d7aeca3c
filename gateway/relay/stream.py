"""Bytes of an upstream's answer on their way to the caller.

Laws
    * An answer that ends early upstream ends early downstream: the connection is reset, never
      finished as if it were whole.
    * When the caller leaves, the upstream is cut. Only ``receive`` tells; watching it costs a
      task, so it begins when a body turns out to be longer than one piece.
    * A caller that does not read is waited for, and then given up.

Source: attack log rows S17, D3, D5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gateway.relay.upstream import UpstreamError, UpstreamResponse

WRITE_STALL_S: Final = 30.0

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


class Truncated(Exception):  # noqa: N818 - reads as what it is
    """The answer cannot be ended properly: the caller's connection must be reset."""


async def relay_body(response: UpstreamResponse, receive: Receive, send: Send) -> int:
    """Send the whole body after a response start; how many bytes it had.

    Raises: Truncated when the upstream failed or the caller left or stalled.
    """
    watch: asyncio.Task[None] | None = None
    sent = 0
    task = asyncio.current_task()
    gone = asyncio.Event()
    try:
        async for piece in response:
            async with asyncio.timeout(WRITE_STALL_S):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent += len(piece)
            if watch is None and not response.done and task is not None:
                watch = asyncio.create_task(_watch(receive, gone, task))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except (UpstreamError, TimeoutError) as error:
        raise Truncated(str(error)) from error
    except asyncio.CancelledError:
        if gone.is_set() and task is not None and task.uncancel() == 0:
            raise Truncated("the caller left") from None
        raise
    finally:
        if watch is not None:
            watch.cancel()
        await response.aclose()
    return sent


async def collect(response: UpstreamResponse, *, bytes_max: int) -> bytes:
    """The whole body, when it must be known before anything is sent.

    Raises: UpstreamError; Truncated when it is longer than ``bytes_max``.
    """
    whole = bytearray()
    try:
        async for piece in response:
            whole += piece
            if len(whole) > bytes_max:
                raise Truncated("the body is too large to be held")
    finally:
        await response.aclose()
    return bytes(whole)


async def _watch(receive: Receive, gone: asyncio.Event, task: asyncio.Task[Any]) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            gone.set()
            task.cancel()
            return
