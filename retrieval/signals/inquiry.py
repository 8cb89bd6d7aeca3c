"""A question on its way to the worker that asks whether the whole corpus has an answer.

Theory
    Classification needs the question's words, and no store may keep them. So they travel in a
    notification of the database: to whoever listens at that moment, into no table, encrypted,
    because any login of the database may listen. Without a listener the question is gone and
    its gap stays unclassified, which never reaches a backlog.

Whether a question travels depends on its own answer alone, and whoever asked waits for nothing.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken

from retrieval.contract import Response
from retrieval.stores.roles import derived_key

CHANNEL: Final = "gw_inquiry"
_BYTES_MAX: Final = 7_900
"""Postgres takes notifications of less than 8,000 bytes."""
_AGE_MAX_S: Final = 300


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question that found no thread, or nothing; ``query_id`` names its metric event."""

    query_id: UUID
    query: str


class InquirySeal:
    """Closes and opens inquiries under a key that is derived from the database's secret."""

    def __init__(self, secret: str) -> None:
        self._box: Final = Fernet(base64.urlsafe_b64encode(derived_key("inquiry", secret)))

    def close(self, inquiry: Inquiry) -> str | None:
        """What may travel; None for a question that does not fit, which stays unclassified."""
        plain = json.dumps([str(inquiry.query_id), inquiry.query]).encode()
        token = self._box.encrypt(zlib.compress(plain)).decode()
        return token if len(token) <= _BYTES_MAX else None

    def open(self, token: str) -> Inquiry | None:
        """The inquiry; None for what is no inquiry of ours or older than five minutes."""
        try:
            plain = zlib.decompress(self._box.decrypt(token.encode(), ttl=_AGE_MAX_S))
        except InvalidToken:
            return None
        query_id, query = json.loads(plain)
        return Inquiry(UUID(query_id), query)


def wanted(response: Response) -> bool:
    """Whether an answer may be a gap: no thread answered, and that was not the caller's wish."""
    return response.mode == "none" or any(
        pack.fallback_signal is not None and pack.fallback_signal.reason != "raw_requested"
        for pack in response.packs
    )
