"""Trace identity of one request, made before anything is decided.

Theory
    A trace id is needed early (the journal's row carries it), the span late (most requests
    are not sampled). So a request begins with ids only, about a microsecond, and `spans`
    makes a span of them afterwards if one is wanted.

    ``traceparent`` of an untrusted peer must not choose our trace id: it could join foreign
    requests into one trace or force sampling. Such a one is *linked*; only a trusted peer's
    is *continued*.

Source: W3C Trace Context, level 1, sections 3.2.2 and 4.3.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

_TRACEPARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1
_SPAN: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class PeerTrace:
    """The trace that a peer says it is in."""

    trace_id: int
    span_id: int
    sampled: bool


@dataclass(slots=True)
class TraceContext:
    """The ids under which one request may be traced. Made once and changed by nobody; a frozen one
    takes three times as long to make.

    ``peer`` is the peer's trace, ``continued`` says whether we are part of it (else it is
    only linked). ``sampled`` was decided at the start; an event is traced regardless.
    """

    trace_id: int
    span_id: int
    sampled: bool
    peer: PeerTrace | None = None
    continued: bool = False

    @property
    def trace_hex(self) -> str:
        """32 lower-case hex digits: what stands in the journal and in error logs."""
        return f"{self.trace_id:032x}"

    def traceparent(self) -> bytes:
        """The header value for a hop that we make on behalf of this request."""
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, self.sampled)


def parse_traceparent(value: bytes | None) -> PeerTrace | None:
    """The peer's trace, or none for anything that is not exactly one valid header value."""
    match = _TRACEPARENT.fullmatch(value) if value is not None else None
    if match is None or match[1] == b"ff":
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    if trace_id == 0 or span_id == 0:
        return None
    return PeerTrace(trace_id, span_id, bool(int(match[4], 16) & _SAMPLED))


def begin(traceparent: bytes | None, *, trusted: bool, sample_ratio: float) -> TraceContext:
    """Ids for one request. Cost: one read of 24 random bytes, no lock, no I/O.

    ``trusted`` says whether the peer is one that the policy snapshot trusts. Sampling of a
    continued trace follows the peer; of an own one ``sample_ratio``.
    """
    peer = parse_traceparent(traceparent) if traceparent is not None else None
    draw = os.urandom(24)
    # 0 is the invalid id of the standard; one in 2**64 draws would be it
    span_id = int.from_bytes(draw[16:]) or 1
    if peer is not None and trusted:
        return TraceContext(peer.trace_id, span_id, peer.sampled, peer, continued=True)
    trace_id = int.from_bytes(draw[:16]) or 1
    sampled = (trace_id & 0xFFFF_FFFF_FFFF_FFFF) < sample_ratio * _SPAN
    return TraceContext(trace_id, span_id, sampled, peer)
