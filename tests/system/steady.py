"""What of an answer may be compared with another one: all but what each delivery draws anew."""

from __future__ import annotations

import re
from typing import Final

_DRAWN: Final = re.compile(rb'"(pack_id|next_cursor|delivered_at)":"[^"]*"')
"""Ids and times of one answer; whether a cursor is there at all is not among them."""


def steady(body: bytes, request_id: str) -> bytes:
    """``body`` with a dash for the ids of request and packs, for cursors and delivery times."""
    named = body.replace(request_id.encode(), b"-") if request_id else body
    return _DRAWN.sub(rb'"\1":"-"', named)
