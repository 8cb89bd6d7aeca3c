"""One JSON line per request on standard output, written by a thread of its own.

Laws
    * The event loop never waits for the terminal or the pipe: a full queue drops lines and
      counts them (the journal, not this log, is the record of security events).
    * Every line is plain ASCII: control, direction and escape characters of whatever a caller
      sent cannot reach a terminal or forge a line.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TextIO

import orjson

from gateway.telemetry.drain import Drain
from gateway.telemetry.fields import RequestRecord, of_event, of_request
from gateway.telemetry.trace import TraceContext

_LINES_MAX: Final = 4_096
_LINGER_S: Final = 0.05
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:\-]*")
_MARK: Final = "{}"
"""Stands for a request id; no word in a record has braces."""
_FIRST: Final = '"http.request.method"'
_NOBODYS: Final = TraceContext(0, 0, sampled=False)


def line(record: RequestRecord) -> str:
    """The record as one JSON object on one ASCII line, without the line break.

    What many requests have in common is written once. Cost: 2 us.
    """
    if record.event is not None or not _PLAIN.fullmatch(record.request_id + record.peer):
        return _line(record)
    second, rest = divmod(record.began_ns, 1_000_000_000)
    front, back = _common(
        record.method,
        record.status,
        record.route,
        record.surface,
        record.audience,
        record.profile,
        record.decision,
        record.code,
        record.reason,
        record.policy_digest,
    )
    return (
        f'{{"time":"{_second(second)}.{rest // 1_000:06d}+00:00","event":"request",'
        f'"trace_id":"{record.trace.trace_hex}","peer":"{record.peer}",'
        f'"duration_us":{record.duration_ns // 1_000},"bytes_in":{record.bytes_in},'
        f'"bytes_out":{record.bytes_out},{front}{record.request_id}{back}'
    )


@lru_cache(maxsize=1_024)
def _common(
    method: str,
    status: int,
    route: str,
    surface: str,
    audience: str,
    profile: str,
    decision: str,
    code: str,
    reason: str,
    digest: str,
) -> tuple[str, str]:
    """What stands before the request id of such records, and what behind it."""
    text = _line(
        RequestRecord(
            trace=_NOBODYS,
            request_id=_MARK,
            surface=surface,
            method=method,
            route=route,
            audience=audience,
            profile=profile,
            decision=decision,
            status=status,
            code=code,
            reason=reason,
            policy_digest=digest,
            began_ns=0,
            started_ns=0,
            ended_ns=0,
        )
    )
    front, back = text.split(_MARK)
    return front[front.index(_FIRST) :], back


def _line(record: RequestRecord) -> str:
    second, rest = divmod(record.began_ns, 1_000_000_000)
    fields: dict[str, object] = {
        "time": f"{_second(second)}.{rest // 1_000:06d}+00:00",
        "event": "request",
        "trace_id": record.trace.trace_hex,
        "peer": record.peer,
        "duration_us": record.duration_ns // 1_000,
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        **of_request(record),
    }
    if record.event is not None:
        fields["security_event"] = {"kind": record.event.kind.value, **of_event(record.event)}
    try:
        text = orjson.dumps(fields)
    except TypeError:  # a text that is no Unicode
        text = b"\x7f"
    if text.isascii() and b"\x7f" not in text:
        return text.decode("ascii")
    # json escapes everything but DEL when it writes ASCII; it is five times slower
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).replace("\x7f", "\\u007f")


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class AccessLog:
    """Writes lines to ``out`` from its own thread; ``dropped`` counts what did not get there."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drain = Drain(
            self._write, name="access-log", items_max=_LINES_MAX, linger_s=_LINGER_S
        )

    @property
    def dropped(self) -> int:
        return self._drain.overflowed + self._drain.failed

    def add(self, record: RequestRecord) -> None:
        """Queue one line. Never blocks, never raises for a full queue or a closed pipe."""
        self._drain.put(line(record))

    def close(self, *, timeout_s: float) -> None:
        """Write what is queued, for at most ``timeout_s``."""
        self._drain.close(timeout_s=timeout_s)

    def _write(self, lines: list[str]) -> int:
        try:
            self._out.write("\n".join(lines) + "\n")
            self._out.flush()
        except (OSError, ValueError):  # closed pipe, full disk, closed file
            return len(lines)
        return 0
