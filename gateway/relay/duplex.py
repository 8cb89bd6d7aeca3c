"""Messages of a WebSocket between a caller and an upstream, until either ends it, or we do.

Laws
    * One message at a time in each direction: whoever does not read stops the other side.
    * An end is passed on with its code and reason; one that has none, or was a loss, with the
      nearest code that may be sent.
    * We end a socket for reasons of our own (``end``): 1008 when it is not allowed any more,
      1012 when the process drains. The upstream learns that its peer goes away, not why.

Source: RFC 6455 section 7.4; attack log section 4 ("WebSocket"), rows D3, D5, O15.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gateway.relay.stream import WRITE_STALL_S, Truncated
from gateway.relay.upstream import UpstreamError, UpstreamTimeout
from gateway.relay.websocket import (
    GOING_AWAY,
    LOST,
    NO_CODE,
    TOO_BIG,
    Closed,
    MessageTooBig,
    UpstreamSocket,
)

NOT_ALLOWED: Final = 1008
"""Expired, revoked, or the policy became narrower."""
DRAIN: Final = 1012
_GOING_AWAY: Final = Closed(GOING_AWAY)
_CLOSE_S: Final = 5.0

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class By(StrEnum):
    """Who ended a socket."""

    CALLER = "caller"
    UPSTREAM = "upstream"
    GATEWAY = "gateway"


End = tuple[By, Closed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What became of a socket: who ended it and how, and the payload that went over it."""

    by: By
    end: Closed
    bytes_in: int
    bytes_out: int


async def relay_messages(
    receive: Receive, send: Send, upstream: UpstreamSocket, *, end: asyncio.Future[Closed]
) -> Relayed:
    """Pass messages both ways over an accepted ASGI socket; both sides are closed afterwards.

    ``end`` is set by whoever may end it from outside.

    Raises: Truncated when the caller does not read: its connection must be reset.
    """
    down = asyncio.create_task(_down(upstream, send))
    up = asyncio.create_task(_up(receive, upstream))
    told = _GOING_AWAY
    try:
        by, ended = await _first_end(down, up, end)
        if by is By.CALLER:
            told = ended
    except BaseException:
        await _stop(down, up)
        await upstream.close(told)
        raise
    await _stop(down, up)
    closing = asyncio.create_task(upstream.close(told))
    try:
        if by is not By.CALLER:
            await _tell(send, ended)
    finally:
        await closing
    return Relayed(
        by=by, end=ended, bytes_in=upstream.sent_bytes, bytes_out=upstream.received_bytes
    )


async def _first_end(
    down: asyncio.Task[End], up: asyncio.Task[End | None], end: asyncio.Future[Closed]
) -> End:
    first: set[asyncio.Future[Any]] = {down, up, end}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if up.done() and (ended := up.result()) is not None:
        return ended
    if up.done():  # the upstream has closed: how, comes after what it still said
        rest: set[asyncio.Future[Any]] = {down, end}
        await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
    return down.result() if down.done() else (By.GATEWAY, end.result())


async def _down(upstream: UpstreamSocket, send: Send) -> End:
    while True:
        message = await upstream.receive()
        if isinstance(message, Closed):
            return By.UPSTREAM, message
        try:
            async with asyncio.timeout(WRITE_STALL_S):
                if isinstance(message, str):
                    await send({"type": "websocket.send", "text": message})
                else:
                    await send({"type": "websocket.send", "bytes": message})
        except TimeoutError:
            raise Truncated("the caller does not read") from None
        except OSError:  # the server's word for a caller that has left
            return By.CALLER, Closed(LOST)


async def _up(receive: Receive, upstream: UpstreamSocket) -> End | None:
    """How the caller, or what it sent, ended the socket; None when the upstream had."""
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            return By.CALLER, Closed(event.get("code") or NO_CODE, event.get("reason") or "")
        text = event.get("text")
        try:
            await upstream.send(text if text is not None else event["bytes"])
        except MessageTooBig:
            return By.GATEWAY, Closed(TOO_BIG)
        except UpstreamTimeout:
            return By.UPSTREAM, Closed(LOST)
        except UpstreamError:
            return None


async def _stop(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _tell(send: Send, end: Closed) -> None:
    """Close the caller's side, if it still listens."""
    code = {NO_CODE: 1000, LOST: 1011}.get(end.code, end.code)
    try:
        async with asyncio.timeout(_CLOSE_S):
            await send({"type": "websocket.close", "code": code, "reason": end.reason})
    except (OSError, RuntimeError):
        return  # it has left in the same moment
    except TimeoutError:
        raise Truncated("the caller does not read") from None
