"""A gateway that is asked everything twice, the second time as a caller whom it knows.

A header block that was let pass a moment ago is looked up by its bytes (`gateway/fastpath`). So
what a test sends goes over one kept connection: as it is; with the same header block to a target
that its caller may have; and as it is again. The test sees the second answer, and what arrived
for it.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.adversary.client import Kept
from tests.adversary.portals import Arrived
from tests.adversary.process import Gateway

_CLOSE: Final = b"\r\nConnection: close\r\n"
_KNOWN: Final = b"GET /portal/customer/known HTTP/1.1"
_OWN: Final = re.compile(rb'(date: |x-request-id: |"request_id":")[^\r"]+')
_OWN_HEADERS: Final = {
    "x-request-id",
    "traceparent",
    "x-gateway-assertion",
    "x-gateway-delegation",
}


class Twice(Gateway):
    """The same process. Raises: AssertionError when the second time is not like the first."""

    def raw(self, data: bytes, *, listener: str = "data", half_close: bool = False) -> bytes:
        if listener != "data" or half_close:
            return super().raw(data, listener=listener, half_close=half_close)
        before = self._all_that_arrived()
        if data.count(b" HTTP/1.") == 1:
            data = data.replace(_CLOSE, b"\r\n", 1)
            with Kept(self) as kept:
                first, once = kept.raw(data), self._all_that_arrived()
                self._make_known(kept, data)
                second, again = kept.raw(data), self._all_that_arrived()
        else:  # several requests, until the connection ends
            first, once = super().raw(data), self._all_that_arrived()
            second, again = super().raw(data), self._all_that_arrived()
        assert _less_ids(second) == _less_ids(first)
        assert _wholes(again) == _wholes(once)
        self.portals.arrived[:] = before + again
        return second

    def _make_known(self, kept: Kept, data: bytes) -> None:
        line, _, block = data.partition(b"\r\n")
        if line.startswith(b"GET ") and block.endswith(b"\r\n\r\n"):
            kept.raw(_KNOWN + b"\r\n" + block)
            self._all_that_arrived()

    def _all_that_arrived(self) -> list[Arrived]:
        """What arrived since this was asked last; it is taken away."""
        arrived = list(self.arrived)
        self.portals.arrived.clear()
        return arrived


STANCES: Final = pytest.mark.parametrize(
    "gateway", [Gateway, Twice], ids=["once", "twice"], indirect=True
)
"""Each test of a module once as it is, and once with a gateway that knows its callers."""


def _less_ids(answer: bytes) -> bytes:
    return _OWN.sub(rb"\1", answer)


def _wholes(arrived: list[Arrived]) -> list[object]:
    """Whole requests less what is each one's own: half of one may be cut before it arrives."""
    return [
        (one.portal, one.method, one.target, one.body,
         [header for header in one.headers if header[0] not in _OWN_HEADERS])
        for one in arrived if one.whole
    ]  # fmt: skip
