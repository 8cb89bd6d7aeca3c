"""Bytes of an upstream's answer on their way to the caller.

Laws
    * An answer that ends early upstream ends early downstream: the connection is reset, never
      finished as if it were whole.
    * When the caller leaves, the upstream is cut (``watch.py``).
    * A caller that does not read is waited for, and then given up.

Source: attack log rows S17, D3, D5.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gateway.errors import Code, Refusal
from gateway.ingress.body import Body
from gateway.ingress.strict_json import Json, NotStrictJson, parse
from gateway.relay.upstream import (
    UpstreamError,
    UpstreamInvalid,
    UpstreamResponse,
)
from gateway.relay.watch import WRITE_STALL_S as WRITE_STALL_S
from gateway.relay.watch import CallerStalled, CallerWatch, Receive

DOCUMENT_BYTES_MAX: Final = 4 * 1024 * 1024
_JSON: Final = re.compile(rb"application/json(?:\s*;\s*charset=utf-8)?")

Send = Callable[[Any], Awaitable[None]]


class Truncated(Exception):
    """The answer cannot be ended properly: the caller's connection must be reset."""


async def relay_body(
    response: UpstreamResponse, receive: Receive, send: Send, body: Body | None = None
) -> int:
    """Send the whole body after a response start; how many bytes it had.

    ``body`` is the request's, which an upstream that answers early may still be reading.

    Raises: Truncated when the upstream failed or the caller stalled; CallerGone.
    """
    sent = count = 0
    ended = False
    try:
        with CallerWatch(receive, body) as watch:
            async for piece in response:
                # A piece is all that has arrived, so one of a whole body is its last.
                ended = response.done
                count += 1
                watch.writing = count
                await send({"type": "http.response.body", "body": piece, "more_body": not ended})
                watch.writing = 0
                sent += len(piece)
                if ended:
                    break
            if not ended:
                watch.writing = count + 1
                await send({"type": "http.response.body", "body": b"", "more_body": False})
    except (UpstreamError, CallerStalled) as error:
        raise Truncated(str(error)) from error
    finally:
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


async def document_of(response: UpstreamResponse) -> Json:
    """The JSON document of an answer that is to be inspected.

    Raises: Refusal ``not_found`` for the upstream's own 404; UpstreamInvalid for every other
    status than 200 (a 206 is a part of something that was not inspected), another or an
    encoded content type, or a body with more than one reading; Truncated when it is too large.
    """
    try:
        if response.status == 404:
            raise Refusal(Code.NOT_FOUND, "the upstream's 404")
        if response.status != 200:
            raise UpstreamInvalid(f"status {response.status} on a guarded route")
        types = [value for name, value in response.headers if name == b"content-type"]
        encoded = any(
            name == b"content-encoding" and value.strip().lower() != b"identity"
            for name, value in response.headers
        )
        if len(types) != 1 or not _JSON.fullmatch(types[0].strip().lower()) or encoded:
            raise UpstreamInvalid("not plain JSON")
        body = await collect(response, bytes_max=DOCUMENT_BYTES_MAX)
    finally:
        await response.aclose()
    try:
        return parse(body)
    except NotStrictJson as error:
        raise UpstreamInvalid(str(error)) from error
