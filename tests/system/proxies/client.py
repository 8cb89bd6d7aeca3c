"""A client that sends exactly the bytes it is given."""

from __future__ import annotations

import socket

from tests.gateway.stage import Reply, parse


def exchange(port: int, raw: bytes, *, source: str = "127.0.0.1") -> Reply:
    """The first final answer to ``raw``; status 0 when the connection ends without one."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), 10, (source, 0)) as sock:
        try:
            sock.sendall(raw)
            while not _whole(received, raw) and (piece := sock.recv(65536)):
                received += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
    if raw.startswith(b"HEAD "):
        received = received.partition(b"\r\n\r\n")[0].lower() + b"\r\n\r\n"
        received = received.replace(b"http/1.1", b"HTTP/1.1").replace(b"content-length", b"x-l")
    replies: list[Reply] = [reply for reply in parse(received) if reply.status >= 200]
    return replies[0] if replies else Reply(0, [], b"")


def _whole(received: bytes, raw: bytes) -> bool:
    """Whether the answer is there in full: a refused upgrade leaves its connection open."""
    head, ended, body = received.partition(b"\r\n\r\n")
    if not ended or b"100 Continue" in head[:40]:
        return False
    if raw.startswith(b"HEAD "):
        return True
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return b"transfer-encoding: chunked" in head.lower() and body.endswith(b"0\r\n\r\n")
