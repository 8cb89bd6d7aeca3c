"""The one reading of a header block, by itself: parsers below it may be lenient one day.

Provenance: RFC 9112 section 6; attack log rows S1-S5, S9, S15.
"""

from __future__ import annotations

import pytest

from gateway.relay.framing import Framing, framing_of
from gateway.relay.upstream import UpstreamInvalid

LENGTH, CODING = b"content-length", b"transfer-encoding"
DELIMITED = Framing(until_eof=False, doubtful=False)
UNTIL_EOF = Framing(until_eof=True, doubtful=False)
DOUBTFUL = Framing(until_eof=False, doubtful=True)


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ([(LENGTH, b"2"), (LENGTH, b"3")], "1.1"),
        ([(LENGTH, b"2"), (LENGTH, b"2")], "1.1"),
        ([(LENGTH, b"2, 2")], "1.1"),
        ([(LENGTH, b"+2")], "1.1"),
        ([(LENGTH, b"")], "1.1"),
        ([(LENGTH, "٢".encode())], "1.1"),
        ([(LENGTH, b"9" * 19)], "1.1"),
        ([(LENGTH, b"2"), (CODING, b"chunked")], "1.1"),
        ([(CODING, b"chunked"), (LENGTH, b"2")], "1.1"),
        ([(CODING, b"chunked"), (CODING, b"chunked")], "1.1"),
        ([(CODING, b"gzip, chunked")], "1.1"),
        ([(CODING, b"identity")], "1.1"),
        ([(CODING, b"\x0bchunked")], "1.1"),
        ([(CODING, b"chunked")], "1.0"),
    ],
)
def test_more_than_one_reading_is_none(headers: list[tuple[bytes, bytes]], version: str) -> None:
    """For every status and method: also where no body may follow."""
    for status, method in ((200, "GET"), (204, "GET"), (304, "GET"), (200, "HEAD")):
        with pytest.raises(UpstreamInvalid):
            framing_of(headers, status=status, method=method, version=version)


@pytest.mark.parametrize(
    ("headers", "status", "method", "framing"),
    [
        ([(LENGTH, b" 2\t")], 200, "GET", DELIMITED),
        ([(CODING, b"Chunked")], 200, "GET", DELIMITED),
        ([], 200, "GET", UNTIL_EOF),
        ([], 204, "GET", DELIMITED),
        ([(LENGTH, b"0")], 204, "DELETE", DELIMITED),
        ([(LENGTH, b"5")], 204, "GET", DOUBTFUL),
        ([], 304, "GET", DELIMITED),
        ([(LENGTH, b"5")], 304, "GET", DOUBTFUL),
        ([(CODING, b"chunked")], 304, "GET", DOUBTFUL),
        ([], 200, "HEAD", DOUBTFUL),
        ([(LENGTH, b"5")], 200, "HEAD", DOUBTFUL),
    ],
)
def test_end_of_a_body_and_trust_in_its_connection(
    headers: list[tuple[bytes, bytes]], status: int, method: str, framing: Framing
) -> None:
    """A HEAD's connection is never trusted: whatever its length, a body may still come."""
    assert framing_of(headers, status=status, method=method, version="1.1") == framing
