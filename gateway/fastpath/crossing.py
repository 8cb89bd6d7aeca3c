"""One request between caller and upstream, moved on by what arrives: no task waits for it."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from gateway.fastpath.begun import Begun
from gateway.fastpath.course import Course
from gateway.ingress.opening import lines_of
from gateway.ingress.parser import STATUS_LINE
from gateway.ingress.shortcut import Way
from gateway.relay.exchange import HIGH_BYTES, Exchange
from gateway.relay.headers import of_upstream
from gateway.relay.hop import Hop
from gateway.relay.loan import Loan
from gateway.relay.watch import young_of
from gateway.telemetry.fields import RequestRecord, StationTime
from gateway.telemetry.trace import TraceContext
from gateway.visit import RequestSink

_JUDGED: Final = ("match", "identify", "place", "decide")
_BODILESS: Final = frozenset({204, 304})
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LENGTH: Final = b"content-length: "


class Crossing:
    """From the look-up of a request to its record."""

    __slots__ = (
        "_asked_ns",
        "_began_ns",
        "_course",
        "_data",
        "_exchange",
        "_hop",
        "_loan",
        "_over",
        "_request_id",
        "_sink",
        "_started_ns",
        "_trace",
        "_waits",
        "_way",
    )

    def __init__(
        self,
        sink: RequestSink,
        way: Way,
        course: Course,
        hop: Hop,
        data: bytes,
        *,
        request_id: str,
        trace: TraceContext,
    ) -> None:
        self._began_ns = time.time_ns()
        self._started_ns = time.perf_counter_ns()
        self._sink = sink
        self._way = way
        self._course = course
        self._hop = hop
        self._data = data
        self._request_id = request_id
        self._trace = trace
        self._waits = self._over = False
        self._asked_ns = 0
        """Nothing was lent before."""

    def lend(self) -> bool:
        """Whether a connection was idle for it, and its caller is still there."""
        if self._over:
            return False
        loan = self._hop.lend(self._course.outline)
        if loan is None:
            self._hand_over()
            return False
        self._loan: Loan = loan
        return True

    def sign(self, now: float) -> bytes:
        """What the upstream is asked; empty, and handed over, when that cannot be said."""
        try:
            return self._course.outline.head(self._request_id, self._trace.traceparent(), now)
        except Exception:  # noqa: BLE001 - a key that cannot sign: the ordinary way tells
            self._loan.cut()
            self._hand_over()
            return b""

    def ask(self, head: bytes) -> None:
        """Ask the upstream, or hand over."""
        try:
            self._exchange: Exchange = self._loan.ask(head, self._told)
        except Exception:  # noqa: BLE001 - a defect must not keep the rest of its turn
            self._loan.cut()
            self._hand_over()
        else:
            self._asked_ns = time.perf_counter_ns()

    def gone(self) -> None:
        """The caller left: its upstream is cut."""
        self._end()
        if self._asked_ns:
            self._loan.cut()
        self._record(499, 0, code="caller_gone", left_at="decide")

    def look(self) -> None:
        """It takes too long, or the process ends: whoever can wait takes over."""
        self._hand_over()

    def _told(self) -> None:
        exchange = self._exchange
        if exchange.done:
            self._answer(exchange)
        elif exchange.error is not None or not exchange.status:
            self._hand_over()
        elif not self._waits:
            if _is_small(exchange):
                self._waits = True
                young_of(asyncio.get_running_loop()).add(self)
            else:
                self._course.apt = False  # they are long, or come bit by bit
                self._hand_over()

    def _answer(self, exchange: Exchange) -> None:
        way, body_bytes = self._way, exchange.held_bytes
        try:
            head, chunked = self._head(exchange)
        except Exception:  # noqa: BLE001 - whatever it is, the ordinary way meets it and refuses
            head, chunked = b"", False
        if not head or not body_bytes or exchange.status in _BODILESS:
            self._hand_over()
            return
        body = exchange.taken()
        if chunked:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (body_bytes, body)
        self._end()
        self._loan.end()
        way.answer(head, body)
        self._record(exchange.status, body_bytes)

    def _head(self, exchange: Exchange) -> tuple[bytes, bool]:
        """The head of the answer, and whether it announces chunks. Raises: UpstreamInvalid for
        what no caller should read."""
        reading, way = exchange.reading, self._way
        passed = reading.passed if reading is not None else None
        if passed is None:
            passed = _passed(exchange)
            if reading is not None:
                reading.passed = passed
        chunked = not passed.startswith(_LENGTH) and b"\n" + _LENGTH not in passed
        head = b"%b%b%bx-request-id: %b\r\n%b%b\r\n" % (
            STATUS_LINE[exchange.status],
            way.default_lines,
            passed,
            self._request_id.encode("ascii"),
            self._course.digest_line,
            _CHUNKED if chunked else b"",
        )
        return head, chunked

    def _hand_over(self) -> None:
        self._end()
        begun = Begun(
            request_id=self._request_id,
            trace=self._trace,
            began_ns=self._began_ns,
            started_ns=self._started_ns,
            granted=self._course.granted,
            loan=self._loan if self._asked_ns else None,
        )
        if not self._way.hand_over(self._data, begun):
            begun.let_go()
            self._record(499, 0, code="caller_gone", left_at="decide")

    def _end(self) -> None:
        self._over = True
        if self._asked_ns:
            self._exchange.told = None
        if self._waits:
            young_of(asyncio.get_running_loop()).drop(self)

    def _record(
        self, status: int, bytes_out: int, *, code: str = "", left_at: str = "inspect"
    ) -> None:
        course, ended = self._course, time.perf_counter_ns()
        self._sink.record(
            RequestRecord(
                trace=self._trace,
                request_id=self._request_id,
                surface="data",
                method="GET",
                route=course.route,
                audience=course.audience,
                profile=course.profile,
                decision="allow",
                status=status,
                code=code,
                policy_digest=course.digest,
                began_ns=self._began_ns,
                started_ns=self._started_ns,
                ended_ns=ended,
                stations=self._stations(ended, code) if self._trace.sampled else (),
                facts=course.facts if not code else course.left_at(left_at),
                bytes_out=bytes_out,
                peer=self._way.peer,
            )
        )

    def _stations(self, ended: int, code: str) -> tuple[StationTime, ...]:
        """The look-up is *admit*; what was known takes no time."""
        asked = self._asked_ns or self._started_ns
        judged = [StationTime(station, asked, asked) for station in _JUDGED]
        times = [StationTime("admit", self._started_ns, asked), *judged]
        if not code:
            times += (StationTime("relay", asked, ended), StationTime("inspect", ended, ended))
        return tuple(times)


def _passed(exchange: Exchange) -> bytes:
    """The header lines of an answer that its caller gets. Raises: UpstreamInvalid."""
    return lines_of(of_upstream(exchange.headers, status=exchange.status, method="GET"))


def _is_small(exchange: Exchange) -> bool:
    """Whether the body will be whole soon: it has a length, and not a large one."""
    for name, value in exchange.headers:
        if name == b"content-length":
            return int(value) <= HIGH_BYTES
    return False
