"""Bounds of the listener, as the settings want them."""

from __future__ import annotations

from gateway.ingress.limits import Limits
from gateway.settings import LimitSettings


def limits_of(limits: LimitSettings) -> Limits:
    """Seconds and bytes of one listener."""
    return Limits(
        header_bytes=limits.header_bytes_max,
        header_count=limits.header_count_max,
        target_bytes=limits.target_bytes_max,
        header_s=limits.header_ms / 1_000,
        keep_alive_s=limits.keep_alive_ms / 1_000,
        body_bytes=limits.body_bytes_max,
        body_s=limits.body_ms / 1_000,
        body_idle_s=limits.body_idle_ms / 1_000,
        body_rate=limits.body_rate_min,
        request_s=limits.request_ms / 1_000,
        connections=limits.connections_max,
        connections_per_peer=limits.connections_per_peer_max,
        message_bytes=limits.message_bytes_max,
        ping_s=limits.ping_ms / 1_000,
        stream_s=limits.stream_ms / 1_000,
        stream_idle_s=limits.stream_idle_ms / 1_000,
        events_comment_s=limits.events_comment_ms / 1_000,
    )
