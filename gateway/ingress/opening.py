"""An answer's head and all of its body in one write.

ASGI gives them as two messages, which the server writes in two system calls. Where the whole
answer is at hand this module writes it at once and leaves uvicorn's cycle as if both messages had
been sent. Whatever is not that simple goes the ordinary way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from gateway.ingress.parser import STATUS_LINE, RequestResponseCycle

OPEN: Final = "gateway.open"
"""ASGI scope extension ``{"call": whole}``; see :func:`whole`."""
_COPIED_MAX: Final = 16 * 1024
"""A larger body is not copied behind its head: both go out in one vectored write."""


def whole(
    cycle: RequestResponseCycle, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> bool:
    """Write a whole answer; False when nothing was done and it must be sent as messages.

    ``headers`` hold the one Content-Length that ``body`` has.

    Raises: RuntimeError for a header that holds a line break: a defect.
    """
    if (
        cycle.response_started
        or cycle.disconnected
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
        or not body
    ):
        return False
    if (b"connection", b"close") in headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        headers = [*headers, (b"connection", b"close")]
    head = head_of(status, (*cycle.default_headers, *headers))
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = cycle.chunked_encoding = False
    write_whole(cycle.transport, head, body)
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


def head_of(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Status line and header block of an answer.

    Raises: RuntimeError for a header that holds a line break: a defect.
    """
    return b"%b%b\r\n" % (STATUS_LINE[status], lines_of(headers))


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines as they are sent. Raises: as `head_of`."""
    parts: list[bytes] = []
    lines = 0
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
        lines += 1
    text = b"".join(parts)
    if text.count(b"\n") != lines or text.count(b"\r") != lines:
        raise RuntimeError("a header holds a line break")
    return text


class DefaultLines:
    """What the server adds in front of every answer, which it makes anew each second."""

    __slots__ = ("_headers", "_lines")

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._lines = b""

    def of(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """These headers as lines."""
        if headers is not self._headers:
            self._headers, self._lines = headers, lines_of(headers)
        return self._lines


def write_whole(transport: asyncio.Transport, head: bytes, body: bytes) -> None:
    """Give head and body to the transport together."""
    if len(body) > _COPIED_MAX:
        transport.writelines((head, body))
    else:
        transport.write(head + body)
