"""A refusal reaches a caller that is still sending: closing at once would reset its connection,
and the answer that stands in its socket would be lost.

Provenance: RFC 9112 section 9.6; the issue's "always a clean refusal or a completed request".
"""

from __future__ import annotations

import pytest

from tests.adversary.process import Gateway, head
from tests.gateway.stage import parse

MEGABYTES = 8


@pytest.mark.parametrize(
    ("line", "lines", "status"),
    [
        (b"POST /portal/employee/x HTTP/1.1", (b"Content-Length: 8388608",), 403),
        (b"POST /portal/employee/x HTTP/1.1", (b"Transfer-Encoding: chunked",), 403),
        (b"POST /v1/retrieve HTTP/1.1", (b"Content-Type: application/json",
                                         b"Content-Length: 8388608"), 413),
        (b"PUT /portal/customer/x HTTP/1.1", (b"Content-Length: 8388608",), 405),
        (b"POST /portal/customer/../x HTTP/1.1", (b"Content-Length: 8388608",), 400),
        (b"POST http://a/portal/customer/x HTTP/1.1", (b"Content-Length: 8388608",), 400),
    ],
)  # fmt: skip
@pytest.mark.parametrize("listener", ["data", "second"])
def test_caller_in_the_middle_of_an_upload_reads_its_refusal(
    gateway: Gateway, listener: str, line: bytes, lines: tuple[bytes, ...], status: int
) -> None:
    """Eight megabytes, sent before anything is read: the whole answer, no reset."""
    piece = b"a" * 65_536
    if b"chunked" in lines[0]:
        piece = b"10000\r\n" + piece + b"\r\n"
    with gateway.connect(listener) as sock:
        sock.sendall(head(gateway, line, *lines))
        for _ in range(MEGABYTES * 16):
            sock.sendall(piece)
        received = b""
        while more := sock.recv(65_536):
            received += more
    (reply,) = parse(received)
    assert reply.status == (status if listener == "data" else reply.status)
    assert reply.status >= 400
    assert gateway.arrived == []
