"""A raw client that keeps its connection as long as the gateway does."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Final, Self

from tests.adversary.process import Gateway
from tests.gateway.stage import Reply, parse

_LAST: Final = b"\r\nconnection: close\r\n"


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
        received = self.raw(raw)
        size = size_of_first(received)
        return None if size is None else parse(received[:size])[0]

    def raw(self, raw: bytes) -> bytes:
        """What comes until the first whole answer; all that comes when that is the last one."""
        bodiless = raw.startswith(b"HEAD ")
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
                    if size_of_first(received, bodiless=bodiless) and _LAST not in received:
                        break
            except (ConnectionResetError, BrokenPipeError):
                pass
            size = size_of_first(received, bodiless=bodiless)
            if size is None and not fresh:
                continue  # the kept connection was ended before it was used again
            if size != len(received) or _LAST in received:
                self._close()
            return received
        raise AssertionError("unreachable")

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def size_of_first(received: bytes, *, bodiless: bool = False) -> int | None:
    """Where the sized answer at the beginning ends; None while its end is not there."""
    head, found, rest = received.partition(b"\r\n\r\n")
    if not found or bodiless:
        return len(head) + 4 if found else None
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
            return len(head) + 4 + length if len(rest) >= length else None
    return None
