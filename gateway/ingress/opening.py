"""An answer's head and all of its body in one write.

ASGI gives them as two messages, which the server writes in two system calls. Where the whole
answer is at hand this module writes it at once and leaves uvicorn's cycle as if both messages had
been sent. Whatever is not that simple goes the ordinary way.
"""

from __future__ import annotations

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
    parts, lines, closes = [STATUS_LINE[status]], 2, False
    for name, value in (*cycle.default_headers, *headers):
        parts += (name, b": ", value, b"\r\n")
        lines += 1
        if name == b"connection" and value == b"close":
            closes = True
    if closes:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        parts.append(b"connection: close\r\n")
        lines += 1
    parts.append(b"\r\n")
    head = b"".join(parts)
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        raise RuntimeError("a header holds a line break")
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = cycle.chunked_encoding = False
    if len(body) > _COPIED_MAX:
        cycle.transport.writelines((head, body))
    else:
        cycle.transport.write(head + body)
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True
