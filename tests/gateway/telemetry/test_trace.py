"""Trace identity: what a peer may and may not decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.trace import PeerTrace, begin, parse_traceparent

GIVEN = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PEER = PeerTrace(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, sampled=True)


def test_untrusted_peer_is_linked_and_never_continued() -> None:
    """It could otherwise join foreign requests into one trace or force sampling."""
    trace = begin(GIVEN, trusted=False, sample_ratio=0.0)
    assert trace.peer == PEER
    assert not trace.continued
    assert trace.trace_id != PEER.trace_id
    assert not trace.sampled


def test_trusted_peer_is_continued() -> None:
    """A proxy of ours: one trace through both (W3C Trace Context 4.3)."""
    trace = begin(GIVEN, trusted=True, sample_ratio=0.0)
    assert (trace.trace_id, trace.continued, trace.sampled) == (PEER.trace_id, True, True)
    assert trace.span_id != PEER.span_id


@given(st.binary(max_size=80))
def test_anything_but_a_valid_header_is_ignored(value: bytes) -> None:
    """A caller's bytes never become a trace id and never raise."""
    trace = begin(value, trusted=True, sample_ratio=0.0)
    assert not trace.continued


@pytest.mark.parametrize(
    "value",
    [
        b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        GIVEN + b"\n",
        GIVEN + b"-00",
        b" " + GIVEN,
        None,
    ],
)
def test_invalid_header_is_no_trace(value: bytes | None) -> None:
    """W3C Trace Context 3.2.2: zero ids, version ff, upper case, anything around it."""
    assert parse_traceparent(value) is None


def test_own_header_reads_back() -> None:
    """What we send upstream names this request's span as the parent."""
    trace = begin(None, trusted=False, sample_ratio=1.0)
    assert parse_traceparent(trace.traceparent()) == PeerTrace(trace.trace_id, trace.span_id, True)
    assert trace.trace_hex == f"{trace.trace_id:032x}"


@given(st.booleans())
def test_ratio_zero_samples_none_and_one_samples_all(trusted: bool) -> None:
    """The two ends of the setting are exact."""
    assert not begin(None, trusted=trusted, sample_ratio=0.0).sampled
    assert begin(None, trusted=trusted, sample_ratio=1.0).sampled


def test_ids_are_valid_and_distinct() -> None:
    """1,000 requests, 1,000 traces."""
    made = [begin(None, trusted=False, sample_ratio=0.5) for _ in range(1_000)]
    assert len({trace.trace_id for trace in made}) == 1_000
    assert all(0 < trace.trace_id < 1 << 128 and 0 < trace.span_id < 1 << 64 for trace in made)
    assert 300 < sum(trace.sampled for trace in made) < 700
