"""A raw client that keeps its connection as long as the gateway does."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from tests.adversary.process import Gateway
from tests.gateway.stage import Reply, parse


class Kept:
    """Asks one thing after the other; a connection that the gateway ends is opened anew.

    ``raw`` may be anything at all: what comes back until the first whole answer, or until the
    gateway closes or gives up, is the answer (None: it closed without a word).
    """

    def __init__(self, gateway: Gateway, *, listener: str = "data") -> None:
        self._gateway = gateway
        self._listener = listener
        self._sock: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def ask(self, raw: bytes) -> Reply | None:
        """The first answer to these bytes. What follows it on the connection is dropped."""
        for fresh in (self._sock is None, True):
            if fresh:
                self._close()
                self._sock = self._gateway.connect(self._listener)
            assert self._sock is not None
            received = b""
            try:
                self._sock.sendall(raw)
                while piece := self._sock.recv(65536):
                    received += piece
                    if whole(received):
                        break
            except (ConnectionResetError, BrokenPipeError):
                pass
            replies = parse(received) if whole(received) else []
            if not replies and not fresh:
                continue  # the kept connection was ended before it was used again
            if len(replies) != 1 or replies[0].header("connection") == "close":
                self._close()
            return replies[0] if replies else None
        raise AssertionError("unreachable")

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def whole(received: bytes) -> bool:
    """Whether a sized answer stands at the beginning, to its end."""
    head, found, rest = received.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(rest) >= int(line.partition(b":")[2])
    return False
