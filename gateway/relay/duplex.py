"""Both legs of a WebSocket, from the moment a caller is accepted until either ends it, or we do.

Laws
    * An end is passed on with its code and reason, after every message that came before it; one
      that has none, or was a loss, with the nearest code that may be sent.
    * We end a socket for reasons of our own (``end``): 1008 when it is not allowed any more,
      1012 when the process drains. From then on no message is passed on. The upstream learns
      that its peer goes away, not why.

Source: RFC 6455 section 7.4; attack log section 4 ("WebSocket"), rows D3, D5, O15.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from gateway.relay.stream import Truncated
from gateway.wire.closing import FAILED, GOING_AWAY, LOST, NO_CODE, NORMAL, Closed

if TYPE_CHECKING:
    from gateway.wire.leg import Leg

_GOING_AWAY: Final = Closed(GOING_AWAY)
_TO_CALLER: Final = {NO_CODE: NORMAL, LOST: FAILED}


class By(StrEnum):
    """Who ended a socket."""

    CALLER = "caller"
    UPSTREAM = "upstream"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What became of a socket: who ended it and how."""

    by: By
    end: Closed


async def relay_messages(caller: Leg, upstream: Leg, *, end: asyncio.Future[Closed]) -> Relayed:
    """Pass messages both ways; both legs are gone afterwards.

    ``end`` is set by whoever may end it from outside.

    Raises: Truncated when the caller does not read: its connection was reset.
    """
    caller.join(upstream)
    try:
        relayed = await _ended(caller, upstream, end)
    except BaseException:
        upstream.tell(_GOING_AWAY)
        await upstream.gone()
        raise
    by, how = relayed.by, relayed.end
    if by is By.CALLER and how.code != LOST:
        upstream.tell(how)
    else:
        upstream.tell(_GOING_AWAY)
    caller.tell(Closed(_TO_CALLER.get(how.code, how.code), how.reason))
    await asyncio.gather(caller.gone(), upstream.gone())
    if caller.stalled:
        raise Truncated("the caller does not read")
    return relayed


async def _ended(caller: Leg, upstream: Leg, end: asyncio.Future[Closed]) -> Relayed:
    """The first end, once what came before it has been taken; ours waits for nothing."""
    await _first(caller.ended, upstream.ended, end)
    if end.done():
        return Relayed(by=By.GATEWAY, end=end.result())
    if caller.ended.done():
        relayed, other = Relayed(by=By.CALLER, end=caller.ended.result()), upstream
    else:
        relayed, other = Relayed(by=By.UPSTREAM, end=upstream.ended.result()), caller
    drained = asyncio.ensure_future(other.drained())
    await _first(drained, end)
    drained.cancel()
    return relayed


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
