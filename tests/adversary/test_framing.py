"""Framing and smuggling against a running process, on both listeners.

Provenance: attack log section 3.3, rows S1-S17.
"""

from __future__ import annotations

import json

import pytest

from tests.adversary.process import Gateway, head
from tests.adversary.twice import STANCES

pytestmark = STANCES

LINE = b"POST /portal/customer/x HTTP/1.1"
HIDDEN = b"GET /portal/customer/hidden HTTP/1.1\r\nHost: a\r\n\r\n"
END = b"0\r\n\r\n"
AMBIGUOUS = {
    "S1 length and chunks": (b"Content-Length: 6\r\nTransfer-Encoding: chunked", END + b"G"),
    "S1 chunks and length": (b"Transfer-Encoding: chunked\r\nContent-Length: 6", END + b"G"),
    "S1 a length of nothing": (b"Content-Length: 0\r\nTransfer-Encoding: chunked", END),
    "S2 two": (b"Content-Length: 4\r\nContent-Length: 5", b"abcde"),
    "S2 two alike": (b"Content-Length: 4\r\nContent-Length: 4", b"abcd"),
    "S2 list": (b"Content-Length: 4, 4", b"abcd"),
    "S2 plus": (b"Content-Length: +4", b"abcd"),
    "S2 minus": (b"Content-Length: -1", b""),
    "S2 hex": (b"Content-Length: 0x4", b"abcd"),
    "S2 empty": (b"Content-Length: ", b""),
    "S2 blank inside": (b"Content-Length: 1 2", b"abcdefghijkl"),
    "S2 underscore": (b"Content-Length: 1_0", b"abcdefghij"),
    "S2 beyond every integer": (b"Content-Length: 99999999999999999999", b""),
    "S3 gzip, chunked": (b"Transfer-Encoding: gzip, chunked", END),
    "S3 chunked, gzip": (b"Transfer-Encoding: chunked, gzip", END),
    "S3 gzip": (b"Transfer-Encoding: gzip", b""),
    "S3 identity": (b"Transfer-Encoding: identity", b""),
    "S4 xchunked": (b"Transfer-Encoding: xchunked", END),
    "S4 twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", END),
    "S4 twice in one": (b"Transfer-Encoding: chunked, chunked", END),
    "S4 vertical tab": (b"Transfer-Encoding: \x0bchunked", END),
    "S4 blank before the colon": (b"Transfer-Encoding : chunked", END),
    "S4 quoted": (b'Transfer-Encoding: "chunked"', END),
    "S4 parameter": (b"Transfer-Encoding: chunked;q=1", END),
    "S4 comma": (b"Transfer-Encoding: ,chunked", END),
    "S4 empty": (b"Transfer-Encoding: ", b""),
    "S5 folded": (b"X: 1\r\n 2", b""),
    "S5 folded framing": (b"Transfer-Encoding:\r\n chunked", END),
    "S6 bare line feed": (b"X: 1\nY: 2", b""),
    "S6 bare line feed before framing": (b"X: 1\nTransfer-Encoding: chunked", END),
    "S10 return in a value": (b"X: \rTransfer-Encoding: chunked", END),
    "S10 bare return": (b"X: 1\rY: 2", b""),
}
CHUNKS = {
    "S7 line feed in an extension": b"1;a\nb\r\nx\r\n" + END,
    "S7 line feed after a size": b"1\nx\r\n" + END,
    "S7 line feed after data": b"1\r\nx\n" + END,
    "S7 return in an extension": b"1;a\rb\r\nx\r\n" + END,
    "S8 hex prefix": b"0x1\r\nx\r\n" + END,
    "S8 minus": b"-1\r\nx\r\n" + END,
    "S8 plus": b"+1\r\nx\r\n" + END,
    "S8 seventeen digits": b"11111111111111111\r\nx\r\n" + END,
    "S8 no size": b"\r\nx\r\n" + END,
    "S8 blank": b"1 \r\nx\r\n" + END,
    "S8 underscore": b"0_1\r\nx\r\n" + END,
    "S11 data longer than its size": b"1\r\nxy\r\n" + END,
    "S11 no line break after data": b"1\r\nx0\r\n\r\n",
    "S11 other bytes after data": b"5\r\nAAAAAXX2\r\n45\r\n" + END,
    "S11 trailer that is none": b"1\r\nx\r\n0\r\nno colon\r\n\r\n",
    "S11 trailer with a blank": b"1\r\nx\r\n0\r\nX : 1\r\n\r\n",
}


@pytest.mark.parametrize("listener", ["data", "second"])
@pytest.mark.parametrize(("lines", "body"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguous_request_is_refused_and_its_connection_ends(
    gateway: Gateway, listener: str, lines: bytes, body: bytes
) -> None:
    """S1-S6, S10: one 400 and the end; the request behind it is nobody's."""
    raw = head(gateway, LINE, *lines.split(b"\r\n")) + body + HIDDEN
    replies = gateway.replies(raw, listener=listener)
    assert [reply.status for reply in replies] == [400]
    assert gateway.arrived == []


@pytest.mark.parametrize("body", CHUNKS.values(), ids=CHUNKS)
def test_chunk_with_two_readings_never_ends_a_body(gateway: Gateway, body: bytes) -> None:
    """S7, S8, S11: what came before may have been passed on; an end is never."""
    raw = head(gateway, LINE, b"Transfer-Encoding: chunked") + body + HIDDEN
    assert [reply.status for reply in gateway.replies(raw)] == [400]
    assert not any(seen.whole for seen in gateway.arrived)


def test_chunk_of_more_than_all_memory_is_read_as_what_it_is(gateway: Gateway) -> None:
    """S8: sixteen digits are the largest size there is: never an end, never a second request."""
    raw = (
        head(gateway, LINE, b"Transfer-Encoding: chunked") + b"f" * 16 + b"\r\nx\r\n" + END + HIDDEN
    )
    assert [reply.status for reply in gateway.replies(raw)] in ([400], [408])
    assert not any(seen.whole for seen in gateway.arrived)


@pytest.mark.parametrize("listener", ["data", "second"])
def test_chunks_on_an_older_version_are_refused(gateway: Gateway, listener: str) -> None:
    """S9: HTTP/1.0 knows no chunks; other versions are none."""
    for version, status in ((b"1.0", 400), (b"1.2", 505), (b"0.9", 505), (b"2.0", 505)):
        line = b"POST /portal/customer/x HTTP/" + version
        raw = head(gateway, line, b"Transfer-Encoding: chunked") + END + HIDDEN
        (reply,) = gateway.replies(raw, listener=listener)
        assert reply.status in {status, 400}
    assert gateway.arrived == []


@pytest.mark.parametrize("listener", ["data", "second"])
@pytest.mark.parametrize(
    "lines",
    [
        (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"),
        (b"Connection: upgrade", b"Upgrade: h2c, websocket-no"),
        (b"Connection: upgrade", b"Upgrade: TLS/1.0"),
    ],
)
def test_foreign_upgrade_is_no_switch(
    gateway: Gateway, listener: str, lines: tuple[bytes, ...]
) -> None:
    """S12, S13: answered as HTTP/1.1 or refused; bytes sent ahead are read by nobody."""
    target = b"/portal/customer/x" if listener == "data" else b"/livez"
    ahead = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN
    raw = gateway.raw(
        head(gateway, b"GET " + target + b" HTTP/1.1", *lines) + ahead, listener=listener
    )
    assert raw.count(b"HTTP/1.1 ") == 1
    assert not raw.startswith(b"HTTP/1.1 101")
    assert all("upgrade" not in dict(seen.headers) for seen in gateway.arrived)
    assert [seen.target for seen in gateway.arrived] in ([], ["/portal/customer/x"])


@pytest.mark.parametrize("listener", ["data", "second"])
def test_preface_of_http_2_is_refused(gateway: Gateway, listener: str) -> None:
    """S13: prior knowledge is no knowledge of ours."""
    raw = gateway.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 9, listener=listener)
    assert raw.startswith((b"HTTP/1.1 400", b"HTTP/1.1 505"))
    assert raw.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("target", [b"gateway.test:443", b"/portal/customer/x", b"127.0.0.1:22"])
def test_connect_makes_no_tunnel(gateway: Gateway, target: bytes) -> None:
    """S14, W4: 405 whatever is to be reached; nothing is dialled, no byte after it is read."""
    raw = head(gateway, b"CONNECT " + target + b" HTTP/1.1") + HIDDEN
    (reply,) = gateway.replies(raw)
    assert reply.status in {400, 405}
    assert gateway.arrived == []


@pytest.mark.parametrize(
    "lines", [b"Content-Length: 100", b"Transfer-Encoding: chunked"], ids=["length", "chunks"]
)
def test_body_cut_short_is_an_abort(gateway: Gateway, lines: bytes) -> None:
    """S16: the upstream may have seen a beginning, never an end."""
    body = b"3\r\nabc\r\n" if b"chunked" in lines else b"abc"
    gateway.raw(head(gateway, LINE, lines) + body, half_close=True)
    assert not any(seen.whole for seen in gateway.arrived)


def test_callers_of_one_connection_are_judged_one_by_one(gateway: Gateway) -> None:
    """S15 seen from the front, B6: three people behind one proxy, pipelined, each own answer."""
    asked = [(who, portal) for who in ("customer", "partner", "employee", "agent")
             for portal in ("customer", "partner", "employee")] * 4  # fmt: skip
    raw = b"".join(
        head(gateway, f"GET /portal/{portal}/{number} HTTP/1.1".encode(),
             b"X-Marker: %d" % number,
             *([b"Connection: close"] if number == len(asked) - 1 else []), who=who)
        for number, (who, portal) in enumerate(asked)
    )  # fmt: skip
    replies = gateway.replies(raw)
    assert len(replies) == len(asked)
    for number, ((who, portal), reply) in enumerate(zip(asked, replies, strict=True)):
        if who != portal:
            assert reply.status == 403
            continue
        said = json.loads(reply.body)
        assert (said["portal"], said["audience"], said["marker"]) == (
            f"{portal}-portal", [who], [str(number)],
        )  # fmt: skip
    assert {(seen.portal, seen.value("x-gateway-audience")) for seen in gateway.arrived} == {
        (f"{one}-portal", one) for one in ("customer", "partner", "employee")
    }
