"""An answer that is here whole leaves in one write, and reads like one of two messages.

Provenance: issue 4, "Speed"; attack log rows S17 (framing of answers).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.ingress.opening import whole
from tests.gateway.stage import Stage, parse

BODIES: Final = (b"", b"x", b"y" * 1_024, b"z" * 20_000, b"w" * 200_000)
ASK: Final = "{method} /portal/customer/a HTTP/{version}\r\nHost: h\r\n{more}\r\n"


def asked(method: str = "GET", version: str = "1.1", more: str = "") -> bytes:
    return ASK.format(method=method, version=version, more=more).encode()


def scripted(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("body", BODIES, ids=len)
def test_a_body_of_any_size_arrives_whole_and_the_connection_goes_on(
    stage: Stage, body: bytes
) -> None:
    stage.upstream.answer = scripted(body)
    end = "Connection: close\r\n"
    replies = parse(stage.raw(asked() + asked() + asked(more=end)))
    assert [(one.status, one.body) for one in replies] == [(200, body)] * 3
    assert [one.header("content-length") for one in replies] == [str(len(body))] * 3
    assert [one.header("connection") for one in replies] == [None, None, "close"]
    assert len({one.header("x-request-id") for one in replies}) == 3


def test_a_head_has_no_body_and_an_old_caller_no_further_answer(stage: Stage) -> None:
    stage.upstream.answer = lambda request: scripted(b"" if request[:4] == b"HEAD" else b"abc")
    first, second = stage.raw(asked("HEAD", more="Connection: close\r\n")), b""
    assert first.endswith(b"\r\n\r\n")
    second = stage.raw(asked(version="1.0") + asked())
    assert second.count(b"HTTP/1.1 200") == 1
    assert second.endswith(b"\r\n\r\nabc")


class Written:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True


def cycle(transport: Written, **scope: Any) -> RequestResponseCycle:
    ended: list[bool] = []
    return RequestResponseCycle(
        scope={"method": "GET", **scope},  # type: ignore[typeddict-item]  # what is read of it
        transport=transport,  # type: ignore[arg-type]
        flow=FlowControl(transport),  # type: ignore[arg-type]
        logger=None,  # type: ignore[arg-type]
        access_logger=None,  # type: ignore[arg-type]
        access_log=False,
        default_headers=[(b"date", b"now")],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: ended.append(True),
    )


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\ny", b"a\r"])
def test_a_line_break_in_a_header_is_a_defect_and_nothing_is_written(value: bytes) -> None:
    transport = Written()
    with pytest.raises(RuntimeError, match="line break"):
        whole(cycle(transport), 200, [(b"content-length", b"1"), (b"x-a", value)], b"b")
    assert transport.data == b""


def test_what_is_not_simple_is_left_to_messages() -> None:
    """A caller that does not read, one that left, a HEAD, an answer that began already."""
    headers = [(b"content-length", b"1")]
    paused = cycle(written := Written())
    paused.flow.write_paused = True
    gone = cycle(written)
    gone.disconnected = True
    begun = cycle(written)
    begun.response_started = True
    for one in (paused, gone, begun, cycle(written, method="HEAD")):
        assert not whole(one, 200, headers, b"b")
    assert written.data == b""
    assert whole(cycle(written), 200, headers, b"b")
    assert written.data == b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 1\r\n\r\nb"
